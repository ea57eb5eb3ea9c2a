package state

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// leader returns the leader among the agents of the shard, in groups of size, by its id in the
// swarm. Without a seed all priorities are equal, and the first agent leads. The merge of the
// leaders of all shards is the leader of the swarm.
func (h GroupRange) leader(seed, round uint64, size int, seeded bool) consensus.Leader {
	first, n, all := int64(h.First)*int64(size), int64(h.Groups)*int64(size), int64(h.All)*int64(size)
	l := consensus.Leader{Agent: uint64(first), Elected: true}
	if !seeded {
		return l
	}
	if of := agents.Leading(seed, round, all); of >= first &&
		of < first+n { // else priorities fall from the first agent on
		l.Agent = uint64(of)
	}
	l.Priority = agents.Priority(seed, round, all, uint32(l.Agent))
	return l
}

// vote answers a vote of all agents of the shard. Clients merge the answers of several shards; the
// leader has its id in the swarm for that. The round is that of the entry, which Snapshotter has
// numbered.
func (s *agentState) vote(ctx context.Context, data []byte) (Answer, error) {
	v, err := swarms.DecodeVote(data)
	if err != nil {
		return Answer{}, err
	}
	rule, err := partition.Rule(v)
	if err != nil {
		return Answer{}, err
	}
	seeded := v.Priority == swarms.PrioritySeeded
	d, err := s.agents.Vote(ctx, rule, v.Round, seeded)
	if err != nil {
		return Answer{}, err
	}
	if s.groups.Shards > 1 {
		d.Leader = s.groups.leader(s.seed, v.Round, s.agents.Cell().Agents, seeded)
	}
	data, err = json.Marshal(partition.Decided(d))
	return Answer{Kind: swarms.EntryVoted, Data: data}, err
}
