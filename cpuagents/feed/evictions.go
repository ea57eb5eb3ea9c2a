package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

const (
	// expireEach is the most entities that lose their groups before a batch because of their time.
	expireEach = 256
	// groupMemory is the bytes of a group whose entity may lose it.
	groupMemory = 1 << 10
	// Above maxLeft entities in left, entities whose states are stored are removed.
	maxLeft = 8192
)

// SwapLog commits the swaps of a swarm. commitlog.State is one.
type SwapLog interface {
	// Assign stores assignments for the entries from now on, and sets their After.
	Assign(ctx context.Context, all []statelog.Assignment) error
	// CommitSwap stores a swap with the assignments before it, and returns its entry.
	CommitSwap(ctx context.Context, p Part, evicted, returned uint64) (entry uint64, err error)
	// End returns the last known entry of a shard.
	End(shard int) uint64
}

// Evictions moves the groups of a swarm between its entities: it decides who loses and who gets a
// group, and appends the swaps that do so. The goroutine that feeds uses it, except for States and
// Names, which guard themselves.
type Evictions struct {
	Roster *Roster
	Names  *Names
	// The caller sets the following before Move. States has the states of entities without a group.
	States *statelog.States
	Log    SwapLog
	Window Window
	// Settled are by shard entries of the logs of the swarm. The answers up to them may have states
	// that are not stored yet; nil when they are.
	Settled []uint64

	groups  Groups
	bytes   int                // of the state of a group
	hold    *access.Hold       // nil for none
	left    map[string]leaving // by key, until the answer is stored
	charged int                // groups whose memory is taken
}

// leaving is a swap that took a group from an entity.
type leaving struct {
	shard int
	entry uint64
}

// Restore continues with the assignments of earlier attempts.
func (v *Evictions) Restore(all []statelog.Assignment) error {
	for _, a := range all {
		v.Roster.Restore(a.Group, a.Key)
	}
	v.Roster.Restored()
	v.Names.Add(all)
	return v.charge()
}

func (v *Evictions) charge() error {
	for v.hold != nil && v.charged < v.Roster.Len() {
		if err := v.hold.Keep(entityStep, "its entities"); err != nil {
			return err
		}
		v.charged += entityStep / groupMemory
	}
	return nil
}

// Move appends the swaps of the entities that lose and get groups with the batch that was read,
// before it. Each swap is committed with its assignments, as a batch is. It returns when all are
// stored, and how many entities have lost a group and have returned with their state.
func (v *Evictions) Move(ctx context.Context) (evicted, returned uint64, err error) {
	changes := Changes(v.Roster)
	if len(changes) == 0 {
		return 0, 0, nil
	}
	if err := v.Window.All(ctx, v.Settled); err != nil {
		return 0, 0, err
	}
	v.Settled = nil
	if err := v.charge(); err != nil {
		return 0, 0, err
	}
	fresh, swaps := SplitChanges(changes, v.bytes, v.knows, v.groups.ShardOf)
	for _, s := range swaps {
		lost, got, err := v.swap(ctx, s)
		if err != nil {
			return evicted, returned, err
		}
		evicted += lost
		returned += got
	}
	return evicted, returned, v.assign(ctx, fresh)
}

// knows reports whether an entity had a group before, whose state is stored or will be.
func (v *Evictions) knows(key string) bool {
	if at, left := v.left[key]; left {
		if at.entry > v.Window.Answered(at.shard) {
			return true
		}
		delete(v.left, key)
	}
	return v.States.Has(key)
}

func (v *Evictions) assign(ctx context.Context, changes []Change) error {
	all := make([]statelog.Assignment, len(changes))
	for i, c := range changes {
		all[i] = statelog.Assignment{Group: c.Group, Key: c.Key}
	}
	if err := v.Log.Assign(ctx, all); err != nil {
		return err
	}
	v.Names.Add(all)
	return nil
}

// swap appends one swap. It waits for the answers that have the states.
func (v *Evictions) swap(ctx context.Context, s ShardChanges) (evicted, returned uint64, err error) {
	if err := v.Window.Room(ctx, s.Shard, v.Log.End(s.Shard)); err != nil {
		return 0, 0, err
	}
	keys := make([]string, len(s.Changes))
	for i, c := range s.Changes {
		keys[i] = c.Key
		if at, left := v.left[c.Key]; left && c.Key != "" {
			if err := v.Window.Await(ctx, at.shard, at.entry); err != nil {
				return 0, 0, err
			}
		}
	}
	states, err := v.States.Get(ctx, keys)
	if err != nil {
		return 0, 0, err
	}
	moved := slices.Clone(s.Changes)
	for i := range moved {
		moved[i].Group = v.groups.Group(moved[i].Group)
		if moved[i].Old != "" {
			evicted++
		}
	}
	data, returned, err := EncodeSwap(moved, states)
	if err != nil {
		return 0, 0, err
	}
	if err := v.assign(ctx, s.Changes); err != nil {
		return 0, 0, err
	}
	entry, err := v.Log.CommitSwap(ctx, Part{Shard: s.Shard, Data: data}, evicted, returned)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range s.Changes {
		if c.Old != "" {
			v.left[c.Old] = leaving{s.Shard, entry}
		}
	}
	if len(v.left) > maxLeft {
		maps.DeleteFunc(v.left, func(_ string, at leaving) bool { return at.entry <= v.Window.Answered(at.shard) })
	}
	return evicted, returned, nil
}

// EncodeSwap returns the data of a swap with the states of the entities that get the groups, nil
// for none, and how many entities have one. Changes name groups of the swarm.
func EncodeSwap(changes []Change, states [][]byte) (data []byte, returned uint64, err error) {
	groups := make([]swarms.SwapGroup, len(changes))
	for i, c := range changes {
		groups[i] = swarms.SwapGroup{Group: uint32(c.Group), Tag: c.Old, State: states[i]}
		if states[i] != nil {
			returned++
		}
	}
	if data, err = json.Marshal(swarms.NewSwap(groups)); err != nil {
		return nil, 0, fmt.Errorf("encode a swap: %w", err)
	}
	return data, returned, nil
}

// Changes returns the changes of a roster since the last call, and begins the next batch.
func Changes(r *Roster) []Change {
	changes := r.Changes()
	r.Expire(expireEach)
	return changes
}

// ShardChanges are changes of one shard that fit into a swap.
type ShardChanges struct {
	Shard   int
	Changes []Change
}

// SplitChanges splits changes into fresh, which need no swap, and swaps. A free group that an
// entity without a state gets needs none. had reports whether an entity has a state, which has
// bytes, and shardOf returns the shard of a group.
func SplitChanges(changes []Change, bytes int, had func(key string) bool, shardOf func(group int) int,
) (fresh []Change, swaps []ShardChanges) {
	var moved [swarms.MaxShards][]Change
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

// swapSize returns how many changes fit into one swap, with states of a size in bytes. Both the
// swap and its answer fit into a message, with a state as base64 and a key as JSON.
func swapSize(moved []Change, state int) (n int) {
	for bytes := 0; n < len(moved) && bytes < swarms.MaxState/2; n++ {
		bytes += (state+2)/3*4 + 6*len(moved[n].Old) + 128
	}
	return n
}
