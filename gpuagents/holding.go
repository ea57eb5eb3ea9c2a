package gpuagents

import (
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// holding is what a shard has of its swarm: consecutive groups, all of them where there is one shard.
type holding struct {
	shard, shards int
	first, groups int // its groups: the number of the first one in the swarm, and how many
	all           int // groups of the swarm
}

// holdingOf is what a shard has.
func holdingOf(s jobs.Swarm, shard int) holding {
	first, end := s.ShardGroups(shard)
	return holding{shard: shard, shards: s.ShardCount(), first: first, groups: end - first, all: s.Groups}
}

// check says with a *jobs.Error where a swarm's record and its spec disagree.
func (h holding) check(spec *swarm.Spec) error {
	switch {
	case !spec.ByAgent() && h.shards > 1:
		return jobs.Errorf(jobs.CodeInvalid, "its record has %d shards: a swarm whose groups are addressed has one", h.shards)
	case !spec.ByAgent():
	case h.all != spec.Groups():
		return jobs.Errorf(jobs.CodeInvalid, "its record has %d groups, its spec %d agents in groups of %d: write agents / agents_per_group", h.all, spec.Agents, spec.AgentsPerGroup)
	case h.shards != spec.Shards:
		return jobs.Errorf(jobs.CodeInvalid, "its record has %d shards, its spec %d: write the same in both", h.shards, spec.Shards)
	}
	return nil
}

// String is the groups as digests of what pages mean have them.
func (h holding) String() string {
	return fmt.Sprintf("groups %d to %d of %d", h.first, h.first+h.groups-1, h.all)
}

// owns says with an error that a sentence about id number bad ends with whose it is, if it is not the shard's. ids are those of agents of the swarm, or with
// size 1 of groups, which what says.
func (h holding) owns(ids []uint32, size int, what string) (bad int, err error) {
	first, n, all := int64(h.first)*int64(size), int64(h.groups)*int64(size), int64(h.all)*int64(size)
	for i, id := range ids {
		switch at := int64(id); {
		case at >= all:
			return i, fmt.Errorf("%d of %d", id, all)
		case at < first || at >= first+n:
			of := jobs.Swarm{Groups: h.all, Shards: h.shards}.ShardOf(int(id) / size)
			return i, fmt.Errorf("%d: shard %d of %d has %ss %d to %d: write to the log of shard %d", id, h.shard, h.shards, what, first, first+n-1, of)
		}
	}
	return 0, nil
}

// local appends ids that are the shard's to others as it counts them.
func (h holding) local(to, ids []uint32, size int) []uint32 {
	first := uint32(h.first * size)
	if first == 0 {
		return append(to, ids...)
	}
	for _, id := range ids {
		to = append(to, id-first)
	}
	return to
}
