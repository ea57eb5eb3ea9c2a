package swarmclient

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// AgentStates returns the votes and states of agents, in the order of ids, of a swarm whose agents
// are addressed. It takes up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) AgentStates(ctx context.Context, ids []uint32) (*batch.AgentStates, error) {
	return queryAgents(ctx, s, ids, batch.DecodeAgentStates, (*Split).AgentStates)
}

// GroupStates returns the decisions, rounds and counts of votes of groups, in the order of ids, of
// a swarm whose agents are addressed. It takes up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) GroupStates(ctx context.Context, ids []uint32) (*batch.GroupStates, error) {
	return queryGroups(ctx, s, ids, batch.DecodeGroupStates, (*Split).GroupStates)
}

// AgentVariables returns the state variables and embeddings of agents, in the order of ids, of a
// swarm whose groups are addressed; docs/cells.md describes the variables of each cell. It takes up
// to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) AgentVariables(ctx context.Context, ids []uint32) (*batch.AgentVariables, error) {
	return queryAgents(ctx, s, ids, batch.DecodeAgentVariables, (*Split).AgentVariables)
}

// GroupVariables returns the state variables of groups, as AgentVariables does of agents.
func (s *Swarm) GroupVariables(ctx context.Context, ids []uint32) (*batch.GroupVariables, error) {
	return queryGroups(ctx, s, ids, batch.DecodeGroupVariables, (*Split).GroupVariables)
}

func queryAgents[A any](ctx context.Context, s *Swarm, ids []uint32, decode func([]byte) (A, error),
	merge func(*Split, []A) (A, error),
) (A, error) {
	p, err := SplitAgents(s.record, s.spec.AgentsPerGroup, ids)
	return askSplit(ctx, s, p, err, "query", swarms.EntryQuery, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Agents: p.IDs(k)})
	}, swarms.EntryState, decode, merge)
}

func queryGroups[A any](ctx context.Context, s *Swarm, ids []uint32, decode func([]byte) (A, error),
	merge func(*Split, []A) (A, error),
) (A, error) {
	p, err := SplitGroups(s.record, ids)
	return askSplit(ctx, s, p, err, "query", swarms.EntryQuery, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: p.IDs(k)})
	}, swarms.EntryState, decode, merge)
}
