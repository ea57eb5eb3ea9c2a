package swarms

import (
	"strconv"
)

// MaxShards is the most shards of a swarm.
const MaxShards = 64

// ShardCount is how many shards the swarm has: 1 where the record says none.
func (s Swarm) ShardCount() int { return max(1, s.Shards) }

// ShardGroups are the groups of shard k, those from first on and before end: with G groups and S
// shards the first is k times G over S, without its fraction. So shards differ by one group at
// most, and a swarm with as many groups as shards or more has some in each.
func (s Swarm) ShardGroups(k int) (first, end int) {
	return int(int64(k) * int64(s.Groups) / int64(s.ShardCount())),
		int(int64(k+1) * int64(s.Groups) / int64(s.ShardCount()))
}

// ShardOf is the shard that has a group.
func (s Swarm) ShardOf(group int) int {
	return int((int64(group+1)*int64(s.ShardCount()) - 1) / int64(s.Groups))
}

// validateShards checks what a record says of its shards.
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

// BaseOf is what stands for the first entries of the log of shard k, which may be gone; nil: none
// are.
func (s Swarm) BaseOf(k int) *Base {
	if s.ShardCount() == 1 {
		return s.Base
	}
	if k < len(s.Bases) {
		return &s.Bases[k]
	}
	return nil
}

// LeaseKey is what the lease of a shard of the swarm with that key is called.
func LeaseKey(swarm string, shard int) string { return swarm + "." + strconv.Itoa(shard) }
