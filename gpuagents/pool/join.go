package pool

import (
	"cmp"
	"slices"
)

// Join takes slots on additional devices, which share the ticks of the shard, and reserves the
// bytes that each needs. At most devices devices then make the ticks. Additional devices are of the
// kind of the first one, serve by themselves, and have room; devices with the most room come first.
// Join takes none while the host device serves the shard because another device fails. The caller
// releases the slots.
func (b *Slot) Join(devices int, bytes func(devices int) int64) (all []*Slot) {
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

func (b *Slot) joinAll(most int, need int64) (all []*Slot) {
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

// joinOne joins one device. It returns nil if the device is not open, is of another kind, or has no
// room.
func (b *Slot) joinOne(i int, need int64) *Slot {
	f, ds := b.pool, b.pool.devices[i]
	s, evicted := ds.join()
	if s == nil {
		return nil
	}
	p := &Slot{instance: s, evicted: evicted, pool: f, index: i, reserved: need, metrics: ds.metrics}
	gpu := func(p *Slot) bool { return p.dev.Properties().ComputeMajor > 0 }
	f.mu.Lock()
	fits := gpu(p) == gpu(b) && s.budget.Room()-f.reserved[i] >= need
	if fits {
		f.reserve(i, need)
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

// join is take for a shard of another device: it opens nothing. A nil instance means that the
// device serves nothing now.
func (ds *managedDevice) join() (*instance, <-chan struct{}) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	s := ds.instances[primary]
	if ds.state.level >= OnHost || s == nil {
		return nil, nil
	}
	s.users++
	return s, s.evicted
}
