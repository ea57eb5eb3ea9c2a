package state

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/gpuagents/computation"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// compute answers folds of expressions over the agents of the shard. It changes nothing.
func (s *agentState) compute(ctx context.Context, data []byte) (Answer, error) {
	if err := s.agents.Settle(context.WithoutCancel(ctx)); err != nil {
		return Answer{}, err
	}
	if s.computer == nil {
		layout, vars := Variables(s)
		s.computer = computation.New(computation.Shard{
			Device: s.agents.Device(), Memory: s.memory, Layout: layout, Vars: vars,
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All, Candidates: s.agents.Cell().Candidates,
		})
	}
	return computed(ctx, s.computer, data)
}

// compute is that of agentState.
func (s *groupState) compute(ctx context.Context, data []byte) (Answer, error) {
	if err := s.stream.Sync(context.WithoutCancel(ctx)); err != nil {
		return Answer{}, fault.Mark(err)
	}
	if s.computer == nil {
		layout, vars := Variables(s)
		s.computer = computation.New(computation.Shard{
			Device: s.dev, Memory: s.memory, Layout: layout, Vars: vars, Groups: s.groups, All: s.groups,
		})
	}
	return computed(ctx, s.computer, data)
}

// computed answers the data of an entry by a computer.
func computed(ctx context.Context, c *computation.Computer, data []byte) (Answer, error) {
	want, err := swarms.DecodeCompute(data)
	if err != nil {
		return Answer{}, err
	}
	found, err := c.Compute(ctx, want)
	if err != nil {
		return Answer{}, err
	}
	data, err = json.Marshal(found)
	return Answer{Kind: swarms.EntryComputed, Data: data}, err
}
