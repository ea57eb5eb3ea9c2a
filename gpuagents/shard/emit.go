package shard

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Emissions stores the decisions that rules of swarms emit. jobs/natsq/emissions.Log implements it.
type Emissions interface {
	// Emit stores an emission of the swarm with a key, unless it is stored, and returns when it is.
	// Emissions of a swarm come in the order of its log, those of a former holder of the shard too.
	Emit(ctx context.Context, key string, e swarms.Emission) error
}

// emitter returns a function that emits what the decision of an entry emits; nil: the rules of the
// swarm emit nothing.
func (a *Server) emitter(s swarms.Swarm, spec *swarm.Spec) func(context.Context, uint64, *swarms.Voted) error {
	if rules, err := spec.Rules(); err != nil || !rules.Emits() {
		return nil
	}
	return func(ctx context.Context, entry uint64, v *swarms.Voted) error {
		for _, e := range s.Emissions(entry, v, spec.Vote.Candidates) {
			if err := a.o.Emissions.Emit(ctx, s.Key(), e); err != nil {
				return err
			}
		}
		return nil
	}
}

// permitEmissions refuses a swarm whose rules emit where nothing takes what they emit.
func (a *Server) permitEmissions(spec *swarm.Spec) error {
	rules, err := spec.Rules()
	if err != nil || !rules.Emits() || a.o.Emissions != nil {
		return err
	}
	return jobs.Errorf(jobs.CodeInvalid, "swarm %s emits decisions, and this agent, %s, has no stream for them: leave "+
		"emit out of on_decision, or serve the swarm in a cluster", spec.Name, a.o.Name)
}
