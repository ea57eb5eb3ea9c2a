package cpuagents

import (
	"context"
	"slices"
)

// move appends the swaps of the entities that lose and get groups with the batch, before it.
func (d *detection) move(work context.Context) error {
	evicted, returned, err := d.evict.Move(work)
	d.next.Evicted += evicted
	d.next.Returned += returned
	d.Metrics.moved(evicted, returned)
	d.noteAppended()
	return err
}

// noteAppended tells the goroutine that collects which answers are due.
func (d *detection) noteAppended() {
	d.mu.Lock()
	d.due = slices.Clone(d.state.After)
	d.mu.Unlock()
}
