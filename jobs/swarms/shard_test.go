package swarms

import (
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestShardGroups: shards have all groups once, in order, and as many of them to within one;
// ShardOf is the inverse.
func TestShardGroups(t *testing.T) {
	for _, groups := range []int{1, 2, 3, 7, 63, 64, 65, 1000, 4097, MaxGroups} {
		for shards := 1; shards <= min(groups, MaxShards); shards++ {
			s := Swarm{Groups: groups, Shards: shards}
			next := 0
			for k := range shards {
				first, end := s.ShardGroups(k)
				if n := end - first; first != next || n < groups/shards || n > (groups+shards-1)/shards {
					t.Fatalf("shard %d of %d has groups %d to %d of %d, behind %d", k, shards, first, end, groups, next)
				}
				if a, b := s.ShardOf(first), s.ShardOf(end-1); a != k || b != k {
					t.Fatalf("groups %d and %d of %d are said to be of shards %d and %d, not %d of %d", first, end-1,
						groups, a, b, k, shards)
				}
				next = end
			}
			if next != groups {
				t.Fatalf("%d shards have %d groups of %d", shards, next, groups)
			}
		}
	}
}

// TestEntityGroup: each entity has its own group. With one shard it is the number of the entity;
// with several, entities are dealt to the shards in turn.
func TestEntityGroup(t *testing.T) {
	for groups := 1; groups < 40; groups++ {
		for shards := 1; shards <= min(groups, 7); shards++ {
			s, seen, of := Swarm{Groups: groups, Shards: shards}, map[int]bool{}, make([]int, shards)
			for i := range groups {
				g := s.EntityGroup(i)
				if g < 0 || g >= groups || seen[g] || shards == 1 && g != i {
					t.Fatalf("%d groups, %d shards: entity %d has group %d", groups, shards, i, g)
				}
				if of := s.GroupEntity(g); of != i {
					t.Fatalf("%d groups, %d shards: group %d of entity %d is said to be of %d", groups, shards, g, i,
						of)
				}
				seen[g] = true
				of[s.ShardOf(g)]++
				if slices.Max(of)-slices.Min(of) > 1 {
					t.Fatalf("%d groups, %d shards: after entity %d the shards have %v", groups, shards, i, of)
				}
			}
		}
	}
}

// TestSwarmShards: a record has the number of shards and what their logs have lost, or is refused.
func TestSwarmShards(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	base := Base{SnapshotRef{"a", sum}, 3}
	for want, s := range map[string]Swarm{
		"":                              {Groups: 3, Shards: 3, Bases: []Base{base, base, base}},
		"4 shards of 3 groups":          {Groups: 3, Shards: 4},
		"-1 shards":                     {Groups: 3, Shards: -1},
		"65 shards of 99 groups":        {Groups: 99, Shards: 65},
		"use bases, one a shard":        {Groups: 3, Shards: 3, Base: &base},
		"2 bases of 3 shards":           {Groups: 3, Shards: 3, Bases: []Base{base, base}},
		"1 bases of 1 shards":           {Groups: 3, Bases: []Base{base}},
		"base: entry 0":                 {Groups: 3, Shards: 2, Bases: []Base{base, {SnapshotRef{"a", sum}, 0}}},
		"snapshot a: sha256 \"\": use ": {Groups: 3, Shards: 2, Bases: []Base{base, {SnapshotRef{"a", ""}, 1}}},
	} {
		s.Version, s.ID = jobs.Version, "s"
		if err := s.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	whole := Swarm{Groups: 3, Base: &base}
	if whole.ShardCount() != 1 || whole.BaseOf(0) != &base || (Swarm{Groups: 3, Shards: 2}).BaseOf(1) != nil {
		t.Errorf("%+v: %d shards, base %v", whole, whole.ShardCount(), whole.BaseOf(0))
	}
}
