package swarmclient

import (
	"context"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Swarm is one swarm, with the record that Create or Open returned. A swarm that is deleted and
// created again under the same name is another swarm: calls of the former Swarm fail.
type Swarm struct {
	store   Store
	timeout time.Duration // bounds the wait for the answers to one entry
	spec    *swarm.Spec
	record  swarms.Swarm
}

// None is the name of a vote or decision for no candidate.
const None = "none"

// ID returns the id of the swarm: its name or, of a run, the id of the job.
func (s *Swarm) ID() string { return s.record.ID }

// Record returns the record of the swarm. The caller must not change what it points to.
func (s *Swarm) Record() swarms.Swarm { return s.record }

// Spec returns the specification of the swarm, which the caller must not change.
func (s *Swarm) Spec() *swarm.Spec { return s.spec }

// Candidate returns the name of a vote or a decision, an index of the candidates of the
// specification; None for any other number.
func (s *Swarm) Candidate(c int) string {
	if 0 <= c && c < len(s.spec.Vote.Candidates) {
		return s.spec.Vote.Candidates[c]
	}
	return None
}

// Wait returns when GPU agents serve all shards. It asks each shard for its first agent, which
// changes nothing.
func (s *Swarm) Wait(ctx context.Context) error {
	_, err := ask(ctx, s, swarms.EntryQuery, nil, func(k int) ([]byte, error) {
		return shard{s, k}.firstAgent()
	}, swarms.EntryState, func([]byte) (struct{}, error) { return struct{}{}, nil })
	return err
}

// Tick steps all agents count times, 1 or more, each driven by the input that it holds. It returns
// the tally after the last step; Stepped is the number of steps of all agents. Each entry has up to
// swarms.MaxTicks steps, or one if knowledge nodes have agents of several shards. Such nodes get
// what agents observe between two steps of a call one step later. When an entry fails, the steps of
// earlier entries have taken effect.
func (s *Swarm) Tick(ctx context.Context, count int) (sum swarms.Ticked, err error) {
	most, own := swarms.MaxTicks, [][]byte(nil)
	if s.spec.MergesNodes() {
		most = 1
	}
	var tokens []swarms.TokenRow
	for stepped := uint64(0); count > 0; count -= most {
		n := min(count, most)
		var all []swarms.Ticked
		if s.spec.MergesNodes() {
			all, own, err = s.mergedTick(ctx, own)
		} else {
			all, err = askAll(ctx, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n},
				swarms.EntryTicked, swarms.DecodeTicked)
		}
		if err == nil {
			sum, err = MergeTicked(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), n, all)
			err = s.badAnswer(err)
		}
		if err != nil {
			return sum, err
		}
		stepped += sum.Stepped
		tokens = append(tokens, sum.Tokens...)
		sum.Stepped, sum.Tokens = stepped, tokens
	}
	return sum, nil
}

// Reset returns all agents to their initial state, also if the swarm started from a snapshot.
// Weights and the numbers of rounds stay.
func (s *Swarm) Reset(ctx context.Context) error {
	_, err := askAll(ctx, s, swarms.EntryReset, swarms.Reset{Version: jobs.Version}, swarms.EntryCleared,
		swarms.DecodeReset)
	return err
}

// Adopt changes the weights of all agents to the weights of a model, which the GPU agents read from
// the place of snapshots. The states of the agents stay. If some shards refuse the model, the
// others have adopted it, and another call adopts it in the rest.
func (s *Swarm) Adopt(ctx context.Context, of swarms.ModelRef) error {
	_, err := askAll(ctx, s, swarms.EntryAdopt, swarms.Adopt{Version: jobs.Version, ModelRef: of},
		swarms.EntryAdopted, swarms.DecodeAdopt)
	return err
}

// badAnswer describes answers that contradict each other or the request; nil for a nil error.
func (s *Swarm) badAnswer(err error) error {
	if err == nil {
		return nil
	}
	return jobs.Errorf(jobs.CodeInternal, "swarm %s: %v: see that all GPU agents are of this version", s.record.ID, err)
}
