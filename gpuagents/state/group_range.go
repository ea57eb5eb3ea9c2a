package state

import (
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// GroupRange is the consecutive groups of a swarm that a shard has. With one shard these are all
// groups. It does not change.
type GroupRange struct {
	Shard, Shards int // the number of the shard, from 0 on, and the shards of the swarm
	First, Groups int // its first group in the swarm, and the number of its groups
	All           int // groups of the swarm
}

// RangeOf returns the groups of a shard. shard is below s.ShardCount().
func RangeOf(s swarms.Swarm, shard int) GroupRange {
	first, end := s.ShardGroups(shard)
	return GroupRange{Shard: shard, Shards: s.ShardCount(), First: first, Groups: end - first, All: s.Groups}
}

// check returns a *jobs.Error where the record and the specification of a swarm disagree.
func (h GroupRange) check(spec *swarm.Spec) error {
	switch {
	case h.Shards != max(1, spec.Shards):
		return jobs.Errorf(jobs.CodeInvalid, "its record has %d shards, its spec %d: write the same in both", h.Shards,
			max(1, spec.Shards))
	case !spec.Topology().ByAgent && spec.Groups() != 0 && spec.Groups() != h.All:
		return jobs.Errorf(
			jobs.CodeInvalid,
			"its record has %d groups, its spec %d: write the same, or leave groups out of the spec of a run",
			h.All, spec.Groups(),
		)
	case !spec.Topology().ByAgent:
	case h.All != spec.Groups():
		return jobs.Errorf(
			jobs.CodeInvalid,
			"its record has %d groups, its spec %d agents in groups of %d: write agents / agents_per_group",
			h.All, spec.Agents, spec.AgentsPerGroup,
		)
	}
	return nil
}

// String implements fmt.Stringer. Digests of states contain it.
func (h GroupRange) String() string {
	return fmt.Sprintf("groups %d to %d of %d", h.First, h.First+h.Groups-1, h.All)
}

// owns returns the index of the first id outside the shard, and an error that names the shard that
// has it; nil if all ids are inside. ids are agents in groups of size, or groups, with size 1. The
// parameter what names them in the error.
func (h GroupRange) owns(ids []uint32, size int, what string) (bad int, err error) {
	first, n, all := int64(h.First)*int64(size), int64(h.Groups)*int64(size), int64(h.All)*int64(size)
	for i, id := range ids {
		switch at := int64(id); {
		case at >= all:
			return i, fmt.Errorf("%d of %d", id, all)
		case at < first || at >= first+n:
			of := swarms.Swarm{Groups: h.All, Shards: h.Shards}.ShardOf(int(id) / size)
			return i, fmt.Errorf(
				"%d: shard %d of %d has %ss %d to %d: write to the log of shard %d", id, h.Shard, h.Shards,
				what, first, first+n-1, of,
			)
		}
	}
	return 0, nil
}

func allOf(groups int) GroupRange { return GroupRange{Shards: 1, Groups: groups, All: groups} }

// nodes returns the nodes of the groups of the shard: n nodes from number first on. The argument
// nodes is the number of nodes of the swarm.
func (h GroupRange) nodes(by string, nodes int) (first, n int) {
	if by != swarms.ByGroup {
		return 0, nodes
	}
	first = int(int64(h.First) * int64(nodes) / int64(h.All))
	return first, int(int64(h.First+h.Groups-1)*int64(nodes)/int64(h.All)) - first + 1
}

// local appends ids of the shard to others, as ids from 0 on. owns has accepted the ids. The result
// may share memory with to, and never with ids.
func (h GroupRange) local(to, ids []uint32, size int) []uint32 {
	first, from := uint32(h.First*size), len(to)
	to = append(to, ids...)
	if first > 0 {
		for i := range to[from:] {
			to[from+i] -= first
		}
	}
	return to
}
