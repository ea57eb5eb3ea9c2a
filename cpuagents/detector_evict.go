package cpuagents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/roster"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// eviction moves the groups of a detector between entities. The goroutine that feeds uses it,
// except for states and names, which guard themselves.
type eviction struct {
	roster *roster.Roster
	states *statelog.States // of entities without a group
	names  *groupNames
	bytes  int               // of the state of a group
	leftAt map[string]uint64 // by key: the swap that took the group away, until its answer is stored
	// settled is an entry of the log of the swarm. The answers up to it may have states that are
	// not stored yet; 0 when they are.
	settled uint64
	hold    *inputmem.Hold
	charged int // groups whose memory is taken from hold
}

// newEviction returns the eviction of a detector with up to most groups, whose memory is taken from
// h.
func newEviction(spec EvictSpec, most int, h *inputmem.Hold) *eviction {
	return &eviction{
		roster: roster.New(most, time.Duration(spec.AfterSeconds*float64(time.Second))), names: &groupNames{},
		bytes: spec.StateBytes, leftAt: map[string]uint64{}, hold: h,
	}
}

// restore continues with the assignments of earlier attempts.
func (v *eviction) restore(all []statelog.Assignment) error {
	for _, a := range all {
		v.roster.Restore(a.Group, a.Key)
	}
	v.roster.Restored()
	v.names.add(all)
	return v.charge()
}

// charge takes the memory of the entities from the hold.
func (v *eviction) charge() error {
	const step = entityStep / (2 * entityMemory) // groups
	for v.charged < v.roster.Len() {
		if err := v.hold.Keep(entityStep, "its entities"); err != nil {
			return err
		}
		v.charged += step
	}
	return nil
}

// groupNames tells whose decisions those of a group are. A group may belong to one entity after the
// other, so the answer depends on the entry that the decisions are of.
type groupNames struct {
	mu    sync.RWMutex
	keys  []string // by group, as of the entry that was reached
	later []statelog.Assignment
}

// add appends assignments, in their order.
func (n *groupNames) add(all []statelog.Assignment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.later = append(n.later, all...)
}

// reach goes to an entry, which is after the one before.
func (n *groupNames) reach(entry uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := 0
	for _, a := range n.later {
		if a.After >= entry {
			break
		}
		for len(n.keys) <= a.Group {
			n.keys = append(n.keys, "")
		}
		n.keys[a.Group] = a.Key
		done++
	}
	if n.later = n.later[done:]; len(n.later) == 0 {
		n.later = nil // gives the memory back
	}
}

// Key implements encode.Entities.
func (n *groupNames) Key(group int) (key string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if group < 0 || group >= len(n.keys) || n.keys[group] == "" {
		return "", false
	}
	return n.keys[group], true
}

// move appends the swaps of the entities that lose and get groups with the batch, before it. Each
// swap is committed with its assignments, as a batch is. It returns when all are stored.
func (d *detection) move(work context.Context) error {
	v := d.evict
	changes := v.roster.Changes()
	v.roster.Expire(expireEach)
	if len(changes) == 0 {
		return nil
	}
	if err := d.settleStates(work); err != nil {
		return err
	}
	if err := v.charge(); err != nil {
		return err
	}
	var fresh []statelog.Assignment
	var moved []roster.Change
	for _, c := range changes {
		if c.Old == "" && !v.knows(c.Key, d.answered.Entry()) {
			fresh = append(fresh, statelog.Assignment{Group: c.Group, Key: c.Key})
		} else {
			moved = append(moved, c)
		}
	}
	for len(moved) > 0 {
		n := swapSize(moved, v.bytes)
		if err := d.swap(work, moved[:n]); err != nil {
			return err
		}
		moved = moved[n:]
	}
	return d.state.assign(work, fresh, v.names)
}

// knows reports whether an entity had a group before, whose state is stored or will be. answered is
// the last entry whose answer is stored.
func (v *eviction) knows(key string, answered uint64) bool {
	if at, left := v.leftAt[key]; left {
		if at > answered {
			return true
		}
		delete(v.leftAt, key)
	}
	return v.states.Has(key)
}

// settleStates waits until the states in the answers to earlier attempts are stored.
func (d *detection) settleStates(work context.Context) error {
	v := d.evict
	if v.settled == 0 {
		return nil
	}
	if err := d.answered.Await(work, v.settled); err != nil {
		return err
	}
	v.settled = 0
	return nil
}

// swap appends one swap, and the assignments that it commits.
func (d *detection) swap(work context.Context, moved []roster.Change) error {
	v := d.evict
	await := uint64(0)
	if d.state.after > window {
		await = d.state.after - window
	}
	keys := make([]string, len(moved))
	for i, c := range moved {
		if keys[i] = c.Key; c.Key != "" {
			await = max(await, v.leftAt[c.Key])
		}
	}
	if err := d.answered.Await(work, await); err != nil {
		return err
	}
	states, err := v.states.Get(work, keys)
	if err != nil {
		return err
	}
	before := d.next
	groups, assigned := make([]swarms.SwapGroup, len(moved)), make([]statelog.Assignment, len(moved))
	for i, c := range moved {
		groups[i] = swarms.SwapGroup{Group: uint32(c.Group), Tag: c.Old, State: states[i]}
		assigned[i] = statelog.Assignment{Group: c.Group, Key: c.Key}
		if c.Old != "" {
			d.next.Evicted++
		}
		if states[i] != nil {
			d.next.Returned++
		}
	}
	data, err := json.Marshal(swarms.NewSwap(groups))
	if err != nil {
		return fmt.Errorf("encode a swap: %w", err)
	}
	if err := d.state.assign(work, assigned, v.names); err != nil {
		return err
	}
	// The places are those of the last batch: no row since then is committed.
	m := d.state.last
	m.Evicted, m.Returned = d.next.Evicted, d.next.Returned
	entry, err := d.state.append(work, swarms.EntrySwap, data, m)
	if err != nil {
		return err
	}
	d.Metrics.moved(d.next.Evicted-before.Evicted, d.next.Returned-before.Returned)
	for _, c := range moved {
		if c.Old != "" {
			v.leftAt[c.Old] = entry
		}
	}
	if len(v.leftAt) > maxLeft {
		answered := d.answered.Entry()
		maps.DeleteFunc(v.leftAt, func(_ string, at uint64) bool { return at <= answered })
	}
	d.mu.Lock()
	d.sent = d.state.after
	d.mu.Unlock()
	return nil
}

// maxLeft is the number of entities in leftAt above which those whose states are stored are
// removed.
const maxLeft = 8192
