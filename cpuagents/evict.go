package cpuagents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// runEviction moves the groups of a stream job between entities. All its decisions depend on the
// rows alone, so every attempt makes the same swaps. Swaps have numbers among the batches. The
// goroutine that feeds uses it, except for states, which guards itself.
type runEviction struct {
	roster *feed.Roster
	states *statelog.States  // of entities that have lost their groups
	bytes  int               // of the state of a group
	left   map[string]uint64 // by key: the number of the last swap that took a group of the entity
	// pending are assignments that are not in the stored dictionary yet, and made the number of all.
	pending []statelog.Assignment
	made    int
}

// newRunEviction returns the eviction of a job whose swarm has a number of groups.
func newRunEviction(spec EvictSpec, groups int) *runEviction {
	return &runEviction{
		roster: feed.NewRoster(groups, spec.after()), bytes: spec.StateBytes,
		left: map[string]uint64{},
	}
}

// place returns the group of the entity of a row. It appends the batch first if every group has
// rows in it, or if the entity loses its group before it.
func (f *batcher) place(work context.Context, row *rows.Row) (group int, err error) {
	for {
		group, ok := f.evict.roster.Group(row.Key, row.Time)
		if ok {
			return group, nil
		}
		if err := f.flush(work); err != nil {
			return 0, err
		}
	}
}

// move appends the swaps of the entities that lose and get groups with the batch, before it.
func (f *batcher) move(work context.Context) error {
	v := f.evict
	changes := feed.Changes(v.roster)
	for i, c := range changes {
		changes[i].Group = f.logs.groups.Record.EntityGroup(c.Group)
	}
	had := func(key string) bool {
		_, had := v.left[key]
		return had
	}
	fresh, swaps := feed.SplitChanges(changes, v.bytes, had, f.logs.groups.Record.ShardOf)
	for _, c := range fresh {
		v.assign(c, f.logs.shards[f.logs.groups.Record.ShardOf(c.Group)].After())
	}
	for _, s := range swaps {
		if err := f.swap(work, s.Shard, s.Changes); err != nil {
			return err
		}
	}
	return nil
}

// swap appends one swap of groups of a shard, unless an earlier attempt has done so. The states
// that it needs are stored before: the collector stores the states of an answer before the answer
// counts.
func (f *batcher) swap(work context.Context, shard int, moved []feed.Change) error {
	v, k := f.evict, f.logs.shards[shard]
	number := f.number
	f.number++
	if p := f.logs.planSwap(shard); p != nil {
		f.x.putPlan(number, p)
	}
	f.x.noteRead(number)
	need := number - min(number, feed.Unanswered)
	keys := make([]string, len(moved))
	for i, c := range moved {
		keys[i] = c.Key
		need = max(need, v.left[c.Key])
		v.assign(c, k.After())
	}
	for _, c := range moved {
		if c.Old != "" {
			v.left[c.Old] = number
		}
	}
	f.x.noteSent(number - 1)
	if err := f.x.room(work, need+feed.Unanswered); err != nil {
		return err
	}
	if number <= k.Stored {
		return nil
	}
	states, err := v.states.Get(work, keys)
	if err != nil {
		return fmt.Errorf("read the states for swap %d: %w", number, err)
	}
	data, _, err := feed.EncodeSwap(moved, states)
	if err != nil {
		return err
	}
	if err := f.storeKeys(work); err != nil {
		return fmt.Errorf("store the keys of swap %d: %w", number, err)
	}
	if err := k.Append(work, swarms.Entry{Kind: swarms.EntrySwap, Ref: number, Data: data}); err != nil {
		return fmt.Errorf("send swap %d: %w", number, err)
	}
	f.x.noteSent(number)
	return nil
}

func (v *runEviction) assign(c feed.Change, after uint64) {
	v.pending = append(v.pending, statelog.Assignment{Group: c.Group, Key: c.Key, After: after})
	v.made++
}

// store stores the assignments that are not stored. An earlier attempt has made the same
// assignments, which hold after other entries.
func (v *runEviction) store(ctx context.Context, keys *statelog.Keys) error {
	for len(v.pending) > 0 {
		if v.made-len(v.pending) < keys.Stored() {
			v.pending = v.pending[1:]
			continue
		}
		n := 1
		for n < len(v.pending) && v.pending[n].After == v.pending[0].After {
			n++
		}
		if err := keys.Assign(ctx, v.pending[:n], v.pending[0].After, nil); err != nil {
			return err
		}
		v.pending = v.pending[n:]
	}
	return nil
}

// swapped stores the states in the answer to a swap. With several shards the number of the swap
// tells which answers are stored, since their logs have no common order.
func (s *stream) swapped(ctx context.Context, e swarms.Entry, m *merge) error {
	if s.evict == nil {
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s answers with an entry of unknown kind %q", s.spec.Name, e.Kind)
	}
	got, err := swarms.DecodeSwapped(e.Data)
	if err != nil {
		return fmt.Errorf("answer %d of swarm %s: %w", e.Seq, s.spec.Name, err)
	}
	answer := e.Seq
	if m.shards > 1 {
		if m.plan == nil || !m.plan.swap {
			return m.wrong("states without a swap")
		}
		m.plan = nil
		answer = s.x.next()
	}
	return s.evict.states.Put(ctx, answer, got.States)
}
