package swarmclient

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// MaxTimestamp bounds the text of a timestamp of ObserveGroups in bytes.
const MaxTimestamp = 64

// Observe gives agents inputs, steps those agents once, and calls fn with their votes and the
// decisions of their groups, in the order of the observations. o has one row of features for each
// observation; an agent may have several. A long list is split into several log entries, each sent
// when the previous one is answered; entries is the number of entries that took effect. fn is
// called after each answer, while the next entry is on its way. An error of fn ends the call after
// that entry. Items are for a swarm that has some.
func (s *Swarm) Observe(ctx context.Context, o *batch.AgentObservations,
	fn func(*batch.AgentDecisions) error,
) (entries int, err error) {
	// Three quarters of a message leave room for the columns' frames.
	size := 4 + 4*len(s.spec.Features)
	if o.Item != nil {
		size += 4
	}
	return inTurn(len(o.Agent), min(swarms.MaxAddressed, jobs.MaxMessage*3/4/size),
		func(first, end int) (*batch.AgentDecisions, error) {
			part := &batch.AgentObservations{
				Agent: o.Agent[first:end], Features: o.Features[first*o.Width : end*o.Width], Width: o.Width,
			}
			if o.Item != nil {
				part.Item = o.Item[first:end]
			}
			return s.observe(ctx, part)
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

// lateObservations says that the observations before index first took effect.
func lateObservations(first int, err error) error {
	return fmt.Errorf("observations from number %d on (those before took effect): %w", first+1, err)
}

func (s *Swarm) observe(ctx context.Context, o *batch.AgentObservations) (*batch.AgentDecisions, error) {
	p, err := SplitAgents(s.record, s.spec.AgentsPerGroup, o.Agent)
	return askSplit(ctx, s, p, err, "observe", swarms.EntryObserve, func(k int) ([]byte, error) {
		return p.Observations(o, k).Pack()
	}, swarms.EntryDecide, batch.DecodeAgentDecisions, (*Split).Decisions)
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

func (s *Swarm) maxGroupRows() int {
	return min(batch.MaxRows, batch.MaxBytes/batch.RowBytes(len(s.spec.Features), MaxTimestamp))
}

func (s *Swarm) observeGroups(ctx context.Context, o *batch.Observations) (*batch.Decisions, error) {
	p, err := SplitGroups(s.record, o.Group)
	return askSplit(ctx, s, p, err, "observe", swarms.EntryObserve, func(k int) ([]byte, error) {
		return p.GroupObservations(o, k).Pack()
	}, swarms.EntryDecide, batch.DecodeDecisions, (*Split).GroupDecisions)
}
