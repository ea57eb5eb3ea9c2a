package pool

import (
	"cmp"
	"slices"
)

// Join places the shard of a placement on further devices, which share its ticks, and reserves the bytes
// that each takes. There are at most so many devices with the first one, of the kind of that one, and
// each serves by itself and has room; those with the most room come first. There are none where the host
// device serves the shard because another one fails. The caller releases the placements.
func (b *Placement) Join(devices int, bytes func(devices int) int64) (all []*Placement) {
	if b.OnHost() {
		return nil
	}
	for n := min(devices, len(b.pool.devices)); n > 1; n-- {
		if need := bytes(n); need > 0 {
			if all = b.joinAll(n-1, need); len(all) == n-1 {
				return all
			}
		}
		for _, p := range all {
			p.Release()
		}
		all = nil
	}
	return nil
}

// joinAll is Join for so many further devices, or as many as there are.
func (b *Placement) joinAll(most int, need int64) (all []*Placement) {
	type candidate struct {
		index int
		rank
	}
	var found []candidate
	f := b.pool
	for i, ds := range f.devices {
		if ds != b.of && ds.level() < OnHost {
			found = append(found, candidate{i, ds.rank()})
		}
	}
	f.mu.Lock()
	for i, c := range found {
		found[i].free, found[i].shards = c.free-f.reserved[c.index], f.shards[c.index]
	}
	f.mu.Unlock()
	slices.SortStableFunc(found, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.free, x.free), cmp.Compare(x.shards, y.shards))
	})
	for _, c := range found {
		if len(all) == most {
			break
		}
		if p := b.joinOne(c.index, need); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// joinOne places the shard on one device; nil: it is not open, of another kind, or has no room.
func (b *Placement) joinOne(i int, need int64) *Placement {
	f, ds := b.pool, b.pool.devices[i]
	s, evicted := ds.join()
	if s == nil {
		return nil
	}
	p := &Placement{slot: s, evicted: evicted, pool: f, index: i, reserved: need, metrics: ds.metrics}
	gpu := func(p *Placement) bool { return p.dev.Properties().ComputeMajor > 0 }
	f.mu.Lock()
	fits := gpu(p) == gpu(b) && s.budget.Room()-f.reserved[i] >= need
	if fits {
		f.reserved[i] += need
		f.shards[i]++
	}
	f.mu.Unlock()
	if !fits {
		ds.release(s)
		return nil
	}
	p.budget = s.budget.WithArrival(p.allocated)
	p.metrics.joined(ds.name, 1)
	return p
}

// join is take for a shard of another device: it opens nothing. A nil slot says that the device serves
// nothing now.
func (ds *managedDevice) join() (*slot, <-chan struct{}) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	s := ds.slots[primarySlot]
	if ds.state.level >= OnHost || s == nil {
		return nil, nil
	}
	s.users++
	return s, s.evicted
}
