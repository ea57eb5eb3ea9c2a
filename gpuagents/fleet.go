package gpuagents

import (
	"context"
	"errors"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
)

// fleet is the devices of an agent. Each has levels, budgets and seats of its own; the fleet says which of them a shard goes to. Its methods
// may be called from several goroutines. Locks are taken in the order fleet, devices, budget.
type fleet struct {
	all     []*devices
	changed *bell

	mu     sync.Mutex // of what follows: a shard's device is chosen when it is known what those before it will take
	shards []int      // by device: which have a place there
	coming []int64    // by device: bytes that are kept for shards on their way there
}

func newFleet(o *Options) *fleet {
	f := &fleet{changed: newBell()}
	own := append([]Accelerator{{o.Device, o.Open, o.PageMemory, o.Shared}}, o.Others...)
	for _, a := range own {
		f.all = append(f.all, newDevices(o, a, f.changed, len(own)))
	}
	f.shards, f.coming = make([]int, len(own)), make([]int64, len(own))
	return f
}

// berth is a shard's place on a device.
type berth struct {
	*seat
	budget *budget
	until  <-chan struct{} // closed when it must leave
	in     *fleet
	at     int   // index of the device
	coming int64 // what is kept for it
}

// take gives a shard a place on the device that it belongs to now, and keeps room for its pages there. Give it back. An errMoved says that no
// device takes any.
func (f *fleet) take(ctx context.Context, s jobs.Swarm) (*berth, error) {
	b := &berth{in: f}
	if len(f.all) > 1 {
		b.coming = needOf(s)
	}
	if b.at = f.choose(b.coming); b.at < 0 {
		return nil, errMoved
	}
	var err error
	if b.seat, b.until, err = f.all[b.at].take(ctx); err != nil {
		b.leave()
		return nil, err
	}
	b.budget = b.seat.budget.as(b.arrive)
	return b, nil
}

// choose is the index of the device that a shard of so many bytes goes to, which are then kept for it; -1 where all are in an emergency.
// Devices that serve by themselves come before those for which the host serves; of these the one with the most room left for pages, less
// what is kept; of those with as much the one with the fewest shards, and then the first.
func (f *fleet) choose(need int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	best := -1
	var most standing
	for i, ds := range f.all {
		now := ds.standing()
		now.room, now.shards = now.room-f.coming[i], f.shards[i]
		if now.level < Emergency && (best < 0 || now.before(most)) {
			best, most = i, now
		}
	}
	if best >= 0 {
		f.coming[best] += need
		f.shards[best]++
	}
	return best
}

// arrive has a shard take its memory, and keeps nothing for it any more.
func (b *berth) arrive(take func()) {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	take()
	b.in.coming[b.at] -= b.coming
	b.coming = 0
}

// leave gives up what the fleet knows of the shard.
func (b *berth) leave() {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	b.in.coming[b.at] -= b.coming
	b.in.shards[b.at]--
	b.coming = 0
}

// give gives the place back, once.
func (b *berth) give() {
	b.leave()
	b.of.give(b.seat)
}

// standing is what a device is chosen by.
type standing struct {
	level  Level
	room   int64 // bytes for pages
	shards int
}

// before says whether a device of this standing is chosen rather than one of another, which stands before it in the list.
func (s standing) before(o standing) bool {
	switch onHost, otherOnHost := s.level == OnHost, o.level == OnHost; {
	case onHost != otherOnHost:
		return otherOnHost
	case s.room != o.room:
		return s.room > o.room
	}
	return s.shards < o.shards
}

// standing is the device's now, but for the shards.
func (ds *devices) standing() standing {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	which := ds.serving()
	if s := ds.seats[which]; s != nil {
		return standing{level: ds.state.level, room: s.budget.room()}
	}
	return standing{level: ds.state.level, room: ds.budgets[which]().room()}
}

// rooms returns the most bytes that one device has for pages, on it and in its part of host memory, and those of all together. known is false where
// a device has no budget.
func (f *fleet) rooms() (most, all int64, known bool) {
	for _, ds := range f.all {
		b := ds.budgets[ownSeat]()
		if b == nil {
			return 0, 0, false
		}
		room := b.wholeDevice + b.wholeHost
		most, all = max(most, room), all+room
	}
	return most, all, true
}

// free returns the most bytes that are left on one device.
func (f *fleet) free() (most int64) {
	for _, ds := range f.all {
		most = max(most, ds.standing().room)
	}
	return most
}

// takes reports whether a device takes work. A change of that rings the bell.
func (f *fleet) takes() bool {
	for _, ds := range f.all {
		if ds.level() < Emergency {
			return true
		}
	}
	return false
}

// health says why no device takes work, of each; nil where one does.
func (f *fleet) health() error {
	var errs []error
	for _, ds := range f.all {
		err := ds.health()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// close gives up what was opened. No shard has a place any more.
func (f *fleet) close() {
	for _, ds := range f.all {
		ds.close()
	}
}

// bell wakes those who wait for a change.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

func newBell() *bell { return &bell{rung: make(chan struct{})} }

// next is closed when the bell is rung.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}
