package shard

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Emissions stores the decisions that rules of swarms emit. jobs/natsq/gateway.Emissions implements
// it.
type Emissions interface {
	// Emit stores an emission of the swarm under a key, unless it is stored, and returns when it
	// is. Emissions of a swarm come in the order of its log, also from a former holder of the
	// shard.
	Emit(ctx context.Context, key string, e swarms.Emission) error
}

// Submissions submits the jobs of rules of swarms. jobs/natsq/gateway.Rules implements it.
type Submissions interface {
	// Submit submits the job of the swarm that an emission asks for, unless it was submitted, and
	// returns when it is stored. It fails while the job has no room, or nobody takes it.
	Submit(ctx context.Context, e swarms.Emission) error
}

// emitter returns a function that emits decisions of entries and submits their jobs; nil: the rules
// of the swarm do neither.
func (a *Server) emitter(s swarms.Swarm, spec *swarm.Spec) func(context.Context, uint64, *swarms.Voted) error {
	if rules, err := spec.Rules(); err != nil || !rules.Emits() && !rules.Submits() {
		return nil
	}
	return func(ctx context.Context, entry uint64, v *swarms.Voted) error {
		for _, e := range s.Emissions(entry, v, spec.Vote.Candidates) {
			if err := a.o.Emissions.Emit(ctx, s.Key(), e); err != nil {
				return err
			}
		}
		for _, e := range s.Submissions(entry, v, spec.Vote.Candidates) {
			if err := a.o.Submissions.Submit(ctx, e); err != nil {
				return fmt.Errorf("submit job %s of round %d, which its vote waits for: %w", e.Name, e.Round, err)
			}
		}
		return nil
	}
}

// permitReactions refuses a swarm whose rules emit or submit jobs if the agent cannot store them.
func (a *Server) permitReactions(spec *swarm.Spec) error {
	rules, err := spec.Rules()
	switch {
	case err != nil:
		return err
	case rules.Emits() && a.o.Emissions == nil:
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s emits decisions, and this agent, %s, has no stream for them: "+
			"leave emit out of on_decision, or serve the swarm in a cluster", spec.Name, a.o.Name)
	case rules.Submits() && a.o.Submissions == nil:
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s submits jobs, and this agent, %s, has no queue for them: leave "+
			"submit out of on_decision, or serve the swarm in a cluster", spec.Name, a.o.Name)
	}
	return nil
}
