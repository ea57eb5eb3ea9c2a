package swarmclient

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// AgentStates returns the votes and states of agents, in the order of ids, of a swarm whose agents
// are addressed. It takes up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) AgentStates(ctx context.Context, ids []uint32) (*batch.AgentStates, error) {
	split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Agents: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeAgentStates)
	if err != nil {
		return nil, err
	}
	states, err := split.AgentStates(all)
	return states, s.badAnswer(err)
}

// GroupStates returns the decisions, rounds and counts of votes of groups, in the order of ids, of
// a swarm whose agents are addressed. It takes up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) GroupStates(ctx context.Context, ids []uint32) (*batch.GroupStates, error) {
	split, err := partition.Groups(s.record, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeGroupStates)
	if err != nil {
		return nil, err
	}
	states, err := split.GroupStates(all)
	return states, s.badAnswer(err)
}

// AgentVariables returns the state variables and embeddings of agents, in the order of ids, of a
// swarm whose groups are addressed; docs/cells.md describes the variables of each cell. It takes up
// to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) AgentVariables(ctx context.Context, ids []uint32) (*batch.AgentVariables, error) {
	split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Agents: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeAgentVariables)
	if err != nil {
		return nil, err
	}
	found, err := split.AgentVariables(all)
	return found, s.badAnswer(err)
}

// GroupVariables returns the state variables of groups, as AgentVariables does of agents.
func (s *Swarm) GroupVariables(ctx context.Context, ids []uint32) (*batch.GroupVariables, error) {
	split, err := partition.Groups(s.record, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeGroupVariables)
	if err != nil {
		return nil, err
	}
	found, err := split.GroupVariables(all)
	return found, s.badAnswer(err)
}
