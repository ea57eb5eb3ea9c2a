// Package eviction moves the groups of a detector between its entities: it decides who loses and who
// gets a group, and makes the swaps that do so.
package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/roster"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

const (
	// expireEach is the most entities that lose their groups before a batch because of their time.
	expireEach = 256
	// holdStep is the bytes of memory that are taken at a time, and groupMemory those of a group.
	holdStep    = 256 << 10
	groupMemory = 1 << 10
	// maxLeft is the number of entities in left above which those whose states are stored are
	// removed.
	maxLeft = 8192
)

// Options are those of an Eviction.
type Options struct {
	Most       int           // groups
	After      time.Duration // without a row, after which an entity loses its group
	StateBytes int           // of the state of a group
	// Group returns the group in the swarm of a number of the roster, and ShardOf its shard.
	Group   func(i int) int
	ShardOf func(i int) int
	// Hold is where the memory is taken from; nil for none.
	Hold *inputmem.Hold
}

// Eviction moves the groups of a swarm between entities. One goroutine, which feeds the swarm, uses
// it, except for States and Names, which guard themselves.
type Eviction struct {
	Roster *roster.Roster
	Names  *Names
	// States are those of entities without a group. The caller sets it before Plan.
	States *statelog.States

	o       Options
	left    map[string]leaving // by key, until the answer is stored
	charged int                // groups whose memory is taken
}

// leaving is a swap that took a group from an entity.
type leaving struct {
	shard int
	entry uint64
}

// New returns an eviction of which no entity has a group.
func New(o Options) *Eviction {
	return &Eviction{
		Roster: roster.New(o.Most, o.After), Names: &Names{shardOf: o.ShardOf}, o: o, left: map[string]leaving{},
	}
}

// Restore continues with the assignments of earlier attempts.
func (v *Eviction) Restore(all []statelog.Assignment) error {
	for _, a := range all {
		v.Roster.Restore(a.Group, a.Key)
	}
	v.Roster.Restored()
	v.Names.Add(all)
	return v.charge()
}

// Fresh implements commitlog.Dictionary: the caller stores all assignments.
func (v *Eviction) Fresh(int) []string { return nil }

// charge takes the memory of the entities from the hold.
func (v *Eviction) charge() error {
	for v.o.Hold != nil && v.charged < v.Roster.Len() {
		if err := v.o.Hold.Keep(holdStep, "its entities"); err != nil {
			return err
		}
		v.charged += holdStep / groupMemory
	}
	return nil
}

// Plan is what has to be stored before the batch that is being read: swaps, each with the
// assignments that it commits, and assignments of groups that nobody had to entities without a
// state.
type Plan struct {
	Swaps []Swap
	Fresh []statelog.Assignment
}

// Swap is a swap of groups of one shard.
type Swap struct {
	ShardChanges
	Assigned []statelog.Assignment
	v        *Eviction
}

// Changes returns the changes of the roster since the last call, and begins the next batch.
func (v *Eviction) Changes() []roster.Change { return Changes(v.Roster) }

// Changes returns the changes of a roster since the last call, and begins the next batch.
func Changes(r *roster.Roster) []roster.Change {
	changes := r.Changes()
	r.Expire(expireEach)
	return changes
}

// ShardChanges are changes of one shard that fit into a swap.
type ShardChanges struct {
	Shard   int
	Changes []roster.Change
}

// Split splits changes into those that need no swap and swaps. A free group that an entity without
// a state gets needs none. had reports whether an entity has a state, which has bytes, and shardOf
// returns the shard of a group.
func Split(changes []roster.Change, bytes int, had func(key string) bool, shardOf func(group int) int,
) (fresh []roster.Change, swaps []ShardChanges) {
	var moved [swarms.MaxShards][]roster.Change
	for _, c := range changes {
		if c.Old == "" && !had(c.Key) {
			fresh = append(fresh, c)
			continue
		}
		k := shardOf(c.Group)
		moved[k] = append(moved[k], c)
	}
	for k, of := range moved {
		for len(of) > 0 {
			n := swapSize(of, bytes)
			swaps = append(swaps, ShardChanges{k, of[:n]})
			of = of[n:]
		}
	}
	return fresh, swaps
}

// Plan makes the swaps of changes. answered returns the last entry of a shard whose answer is stored.
func (v *Eviction) Plan(changes []roster.Change, answered func(shard int) uint64) (p Plan, err error) {
	if err := v.charge(); err != nil {
		return p, err
	}
	knows := func(key string) bool { return v.knows(key, answered) }
	fresh, swaps := Split(changes, v.o.StateBytes, knows, v.o.ShardOf)
	p.Fresh = assignments(fresh)
	for _, s := range swaps {
		p.Swaps = append(p.Swaps, Swap{s, assignments(s.Changes), v})
	}
	return p, nil
}

// assignments returns the assignments of changes.
func assignments(of []roster.Change) (all []statelog.Assignment) {
	for _, c := range of {
		all = append(all, statelog.Assignment{Group: c.Group, Key: c.Key})
	}
	return all
}

// knows reports whether an entity had a group before, whose state is stored or will be.
func (v *Eviction) knows(key string, answered func(shard int) uint64) bool {
	if at, left := v.left[key]; left {
		if at.entry > answered(at.shard) {
			return true
		}
		delete(v.left, key)
	}
	return v.States.Has(key)
}

// Encode returns the data of the entry, and how many entities lose a group and return with their
// state. It waits with await for the answers that have the states: those up to an entry of a shard.
func (s *Swap) Encode(ctx context.Context, await func(ctx context.Context, shard int, entry uint64) error,
) (data []byte, evicted, returned uint64, err error) {
	keys := make([]string, len(s.Changes))
	for i, c := range s.Changes {
		keys[i] = c.Key
		if at, left := s.v.left[c.Key]; left && c.Key != "" {
			if err := await(ctx, at.shard, at.entry); err != nil {
				return nil, 0, 0, err
			}
		}
	}
	states, err := s.v.States.Get(ctx, keys)
	if err != nil {
		return nil, 0, 0, err
	}
	groups := make([]swarms.SwapGroup, len(s.Changes))
	for i, c := range s.Changes {
		groups[i] = swarms.SwapGroup{Group: uint32(s.v.o.Group(c.Group)), Tag: c.Old, State: states[i]}
		if c.Old != "" {
			evicted++
		}
		if states[i] != nil {
			returned++
		}
	}
	if data, err = json.Marshal(swarms.NewSwap(groups)); err != nil {
		return nil, 0, 0, fmt.Errorf("encode a swap: %w", err)
	}
	return data, evicted, returned, nil
}

// Stored notes that the swap is an entry of the log of its shard. answered is that of Plan.
func (s *Swap) Stored(entry uint64, answered func(shard int) uint64) {
	left := s.v.left
	for _, c := range s.Changes {
		if c.Old != "" {
			left[c.Old] = leaving{s.Shard, entry}
		}
	}
	if len(left) > maxLeft {
		maps.DeleteFunc(left, func(_ string, at leaving) bool { return at.entry <= answered(at.shard) })
	}
}

// swapSize returns how many of some changes one swap has, with states of so many bytes. Both the swap
// and its answer fit into a message, with a state as base64 and a key as JSON.
func swapSize(moved []roster.Change, state int) (n int) {
	for bytes := 0; n < len(moved) && bytes < swarms.MaxState/2; n++ {
		bytes += (state+2)/3*4 + 6*len(moved[n].Old) + 128
	}
	return n
}
