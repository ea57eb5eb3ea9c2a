package state

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// merging is how several shards merge their knowledge nodes. Each shard has all nodes. It does not
// change. Swarms without such nodes have the zero value.
type merging struct {
	nodes, units int
	by, merge    string
	first        int    // the node of the first agent of the shard: agents have it as number 0
	agents       uint64 // of the swarm
}

func mergingOf(spec *swarm.Spec, of GroupRange) (m merging) {
	if !spec.MergesNodes() {
		return m
	}
	m = merging{
		nodes: spec.KnowledgeNodes(), units: spec.Knowledge.Units, by: spec.Knowledge.By, merge: spec.Knowledge.Merge,
		agents: uint64(spec.Agents),
	}
	if m.by == swarm.NodesByKey {
		m.first = int(int64(of.First) * int64(spec.AgentsPerGroup) % int64(m.nodes))
	}
	return m
}

// check returns a *jobs.Error for a tick with sums that the swarm does not take, or without sums
// that it needs.
func (m merging) check(t swarms.Tick) error {
	switch {
	case m.nodes == 0 && t.Sums == nil:
		return nil
	case m.nodes == 0:
		return jobs.Errorf(jobs.CodeInvalid, "tick: sums: only a swarm of several shards with knowledge by vote or by "+
			"key takes them: leave them out")
	case t.Sums == nil:
		return jobs.Errorf(jobs.CodeInvalid, "tick: the %d knowledge nodes by %s have agents of all shards: ask each "+
			"shard for its sums, add them up, and send them with a tick of count 1, as exoswarm swarm tick does",
			m.nodes, m.by)
	case len(t.Sums)%8 != 0:
		return jobs.Errorf(jobs.CodeInvalid, "tick: sums of %d bytes: use 8 for each word", len(t.Sums))
	}
	heaviest := uint64(1)
	if m.merge == "attention" {
		heaviest = 1 << kernels.AgentWeightBits
	}
	return swarms.CheckSums(swarms.Words(t.Sums), m.nodes, m.units, m.agents, heaviest, m.merge)
}

// local replaces numbers of nodes of the swarm by numbers in the shard, and returns the slice.
func (m merging) local(ids []uint32) []uint32 {
	if m.first > 0 {
		for i, id := range ids {
			ids[i] = uint32((int(id) + m.nodes - m.first) % m.nodes)
		}
	}
	return ids
}

// own returns sums of the swarm in the order of the shard. whole returns sums of the shard in the
// order of the swarm.
func (m merging) own(sums []uint64) []uint64   { return m.turned(sums, m.first) }
func (m merging) whole(sums []uint64) []uint64 { return m.turned(sums, m.nodes-m.first) }

// turned returns the sums rotated, so that node number first comes first.
func (m merging) turned(sums []uint64, first int) []uint64 {
	at := first % m.nodes * (m.units + 1)
	return append(sums[at:len(sums):len(sums)], sums[:at]...)
}

func (s *agentState) sums(ctx context.Context) (Answer, error) {
	m := s.merge
	if m.nodes == 0 {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: sums: only a swarm of several shards with knowledge by "+
			"vote or by key has sums to merge")
	}
	words, err := s.nodeSums(ctx)
	if err != nil {
		return Answer{}, err
	}
	data, err := json.Marshal(swarms.NodeSums{Version: jobs.Version, Nodes: m.nodes, Units: m.units, Words: words})
	return Answer{Kind: swarms.EntrySums, Data: data}, err
}

// nodeSums returns the words of NodeSums.
func (s *agentState) nodeSums(ctx context.Context) ([]byte, error) {
	sums, err := s.agents.Sums(ctx)
	if err != nil {
		return nil, err
	}
	return swarms.PutWords(s.merge.whole(sums)), nil
}
