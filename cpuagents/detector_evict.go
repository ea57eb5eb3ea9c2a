package cpuagents

import (
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
)

// move appends the swaps of the entities that lose and get groups with the batch, before it. Each
// swap is committed with its assignments, as a batch is. It returns when all are stored.
func (d *detection) move(work context.Context) error {
	v := d.evict
	changes := v.Changes()
	if len(changes) == 0 {
		return nil
	}
	if err := d.settleStates(work); err != nil {
		return err
	}
	answered := func(shard int) uint64 { return d.answered[shard].Entry() }
	plan, err := v.Plan(changes, answered)
	if err != nil {
		return err
	}
	for i := range plan.Swaps {
		s := &plan.Swaps[i]
		if err := d.awaitWindow(work, s.Shard); err != nil {
			return err
		}
		data, evicted, returned, err := s.Encode(work, d.awaitAnswer)
		if err != nil {
			return err
		}
		if err := d.state.Assign(work, s.Assigned); err != nil {
			return err
		}
		v.Names.Add(s.Assigned)
		entry, err := d.state.CommitSwap(work, commitlog.Part{Shard: s.Shard, Data: data}, d.next.Evicted+evicted,
			d.next.Returned+returned)
		if err != nil {
			return err
		}
		s.Stored(entry, answered)
		d.next.Evicted += evicted
		d.next.Returned += returned
		d.Metrics.moved(evicted, returned)
		d.noteAppended()
	}
	if err := d.state.Assign(work, plan.Fresh); err != nil {
		return err
	}
	v.Names.Add(plan.Fresh)
	return nil
}

// awaitAnswer waits until the decisions or states of an entry are taken.
func (d *detection) awaitAnswer(ctx context.Context, shard int, entry uint64) error {
	return d.answered[shard].Await(ctx, entry)
}

// settleStates waits until the states in the answers to earlier attempts are stored.
func (d *detection) settleStates(work context.Context) error {
	for k, entry := range d.settled {
		if err := d.awaitAnswer(work, k, entry); err != nil {
			return err
		}
	}
	d.settled = nil
	return nil
}

// awaitWindow waits until few entries of a shard have no answer.
func (d *detection) awaitWindow(ctx context.Context, shard int) error {
	if after := d.state.After[shard]; after > window {
		return d.awaitAnswer(ctx, shard, after-window)
	}
	return nil
}

// noteAppended tells the goroutine that collects which answers are due.
func (d *detection) noteAppended() {
	d.mu.Lock()
	d.due = slices.Clone(d.state.After)
	d.mu.Unlock()
}
