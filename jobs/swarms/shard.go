package swarms

import (
	"strconv"
)

// MaxShards is the largest number of shards of a swarm.
const MaxShards = 64

// ShardCount returns the number of shards; 1 if the record has none.
func (s Swarm) ShardCount() int { return max(1, s.Shards) }

// ShardGroups returns the groups of shard k: [first, end). With G groups and S shards, first is
// floor(k*G/S). So the sizes of two shards differ by at most one group, and no shard is empty if
// there are at least as many groups as shards.
func (s Swarm) ShardGroups(k int) (first, end int) {
	return int(int64(k) * int64(s.Groups) / int64(s.ShardCount())),
		int(int64(k+1) * int64(s.Groups) / int64(s.ShardCount()))
}

// ShardOf returns the shard of a group.
func (s Swarm) ShardOf(group int) int {
	return int((int64(group+1)*int64(s.ShardCount()) - 1) / int64(s.Groups))
}

// EntityGroup returns the group of entity number i of a swarm with a key, in the order of their
// first rows. Entities go around the shards, so that few entities of many groups use all shards. i
// is below Groups, and each group has one i. With one shard the group is i.
func (s Swarm) EntityGroup(i int) int {
	n := s.ShardCount()
	least := s.Groups / n // groups that each shard has
	if i < least*n {
		first, _ := s.ShardGroups(i % n)
		return first + i/n
	}
	for k, left := 0, i-least*n; k < n; k++ { // some shards have one group more
		first, end := s.ShardGroups(k)
		if end-first == least {
			continue
		}
		if left == 0 {
			return end - 1
		}
		left--
	}
	return i
}

// GroupEntity returns the number i whose EntityGroup is a group.
func (s Swarm) GroupEntity(group int) int {
	n := s.ShardCount()
	least := s.Groups / n
	k := s.ShardOf(group)
	first, _ := s.ShardGroups(k)
	if i := group - first; i < least {
		return i*n + k
	}
	i := least * n
	for before := range k { // that have one group more
		if first, end := s.ShardGroups(before); end-first > least {
			i++
		}
	}
	return i
}

// validateShards checks the fields of a record that depend on the shards.
func (s Swarm) validateShards() error {
	switch {
	case s.Shards < 0 || s.Shards > MaxShards || s.Shards > s.Groups:
		return invalid("swarm %s: %d shards of %d groups: use 1 to %d, and no more than groups", s.ID,
			s.Shards, s.Groups, MaxShards)
	case s.Base != nil && s.ShardCount() > 1:
		return invalid("swarm %s: base: it has %d shards: use bases, one a shard", s.ID, s.Shards)
	case s.Bases != nil && (len(s.Bases) != s.ShardCount() || s.ShardCount() == 1):
		return invalid("swarm %s: %d bases of %d shards: use one a shard, and base where there is one "+
			"shard", s.ID, len(s.Bases), s.ShardCount())
	}
	return nil
}

// BaseOf returns the base of shard k, which replaces the first entries of its log; nil if all
// entries are there.
func (s Swarm) BaseOf(k int) *Base {
	if s.ShardCount() == 1 {
		return s.Base
	}
	if k < len(s.Bases) {
		return &s.Bases[k]
	}
	return nil
}

// LeaseKey returns the key of the lease of a shard. swarm is the key of the swarm (Swarm.Key).
func LeaseKey(swarm string, shard int) string { return swarm + "." + strconv.Itoa(shard) }
