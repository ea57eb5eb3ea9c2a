package swarmclient

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// MaxTimestamp bounds the text of a timestamp of ObserveGroups in bytes.
const MaxTimestamp = 64

// Observe gives agents inputs, steps those agents once, and calls fn with their votes and the
// decisions of their groups, in the order of the observations. o has one row for each observation,
// of as many features as the specification has; an agent may have several. A long list takes
// several entries, of which entries is the number that took effect. Each is sent when the one before
// it is answered. fn is called after each of them, while the next one is on its way, and its error
// ends the call after that.
func (s *Swarm) Observe(ctx context.Context, o *batch.AgentObservations,
	fn func(*batch.AgentDecisions) error,
) (entries int, err error) {
	// Three quarters of a message leave room for the columns' frames.
	rows := min(swarms.MaxAddressed, jobs.MaxMessage*3/4/(4+4*len(s.spec.Features)))
	return inTurn(len(o.Agent), rows, func(first, end int) (*batch.AgentDecisions, error) {
		return s.observe(ctx, &batch.AgentObservations{
			Agent:    o.Agent[first:end],
			Features: o.Features[first*o.Width : end*o.Width], Width: o.Width,
		})
	}, fn)
}

// inTurn sends n rows in parts and calls fn with the answer to each, while a goroutine sends the
// next part. It returns the number of parts that were answered. The goroutine has ended then.
func inTurn[T any](n, rows int, send func(first, end int) (T, error), fn func(T) error) (entries int, err error) {
	type answer struct {
		first int
		value T
		err   error
	}
	answers := make(chan answer, 1)
	start := func(first int) bool {
		if first >= n {
			return false
		}
		go func() {
			v, err := send(first, min(first+rows, n))
			answers <- answer{first, v, err}
		}()
		return true
	}
	for more := start(0); more; {
		a := <-answers
		if a.err != nil {
			return entries, lateObservations(a.first, a.err)
		}
		entries++
		more = start(a.first + rows)
		if err := fn(a.value); err != nil {
			if more && (<-answers).err == nil {
				entries++
			}
			return entries, err
		}
	}
	return entries, nil
}

// lateObservations says that the observations before number first, from 0, took effect.
func lateObservations(first int, err error) error {
	return fmt.Errorf("observations from number %d on (those before took effect): %w", first+1, err)
}

// observe appends the observations of one entry to the logs of their shards.
func (s *Swarm) observe(ctx context.Context, o *batch.AgentObservations) (*batch.AgentDecisions, error) {
	split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, o.Agent)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "observe: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryObserve, split.Has,
		func(k int) ([]byte, error) { return split.Observations(o, k).Pack() }, swarms.EntryDecide,
		batch.DecodeAgentDecisions)
	if err != nil {
		return nil, err
	}
	d, err := split.Decisions(all)
	return d, s.badAnswer(err)
}

// CanObserveGroups returns the error that ObserveGroups would fail with for every list: the log of
// a run's swarm is written by its job alone.
func (s *Swarm) CanObserveGroups() error {
	return shard{s, 0}.allows(swarms.EntryObserve, swarms.Entry{})
}

// ObserveGroups hands over observations of groups, in the order of their times within each group,
// and calls fn with the decisions, as Observe does. Timestamps have up to MaxTimestamp bytes.
func (s *Swarm) ObserveGroups(ctx context.Context, o *batch.Observations,
	fn func(*batch.Decisions) error,
) (entries int, err error) {
	return inTurn(o.Len(), s.maxGroupRows(), func(first, end int) (*batch.Decisions, error) {
		part := &batch.Observations{
			Group: o.Group[first:end], Row: o.Row[first:end], Time: o.Time[first:end], Read: o.Read[first:end],
			Features: o.Features[first*o.Width : end*o.Width],
			Width:    o.Width, Timestamp: o.Timestamp[first:end], Value: o.Value[first*o.Width : end*o.Width],
		}
		return s.observeGroups(ctx, part)
	}, fn)
}

// maxGroupRows returns how many observations of groups one entry takes.
func (s *Swarm) maxGroupRows() int {
	return min(batch.MaxRows, batch.MaxBytes/batch.RowBytes(len(s.spec.Features), MaxTimestamp))
}

// observeGroups appends observations of groups to the logs of their shards, one entry for each.
func (s *Swarm) observeGroups(ctx context.Context, o *batch.Observations) (*batch.Decisions, error) {
	split, err := partition.Groups(s.record, o.Group)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "observe: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryObserve, split.Has,
		func(k int) ([]byte, error) { return split.GroupObservations(o, k).Pack() }, swarms.EntryDecide,
		batch.DecodeDecisions)
	if err != nil {
		return nil, err
	}
	d, err := split.GroupDecisions(all)
	return d, s.badAnswer(err)
}
