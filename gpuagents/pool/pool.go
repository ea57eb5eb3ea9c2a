// Package pool places shards on the devices of an agent, and replaces devices that fail.
package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/broadcast"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// fleet is the devices of an agent. Each has levels, budgets and seats of its own; the fleet says which of them a shard goes to. Its methods
// may be called from several goroutines. Locks are taken in the order fleet, devices, budget.
type Pool struct {
	devices []*managedDevice
	changed *broadcast.Broadcast

	mu       sync.Mutex // of what follows: a shard's device is chosen when it is known what those before it will take
	shards   []int      // by device: which have a place there
	reserved []int64    // by device: bytes that are kept for shards on their way there
}

// poolOptions configure a fleet.
type Options struct {
	// Devices are the devices of the agent, at least one.
	Devices []Accelerator
	// OpenHost opens a device that serves the shards while another device fails: the host device. The pool
	// owns and closes it. nil: there is none, and shards stay on their device.
	OpenHost func(ctx context.Context) (device.Device, error)
	// Patience sets the times of the levels.
	Patience Patience
	Logger   *slog.Logger
	// Metrics counts failures of devices; nil for none.
	Metrics *Metrics
	// HostPageMemory is how many bytes of host memory the pages of all devices may take; each device has
	// an equal part.
	HostPageMemory int64
	// PageAge and HostPageAge are the times without use after which a page leaves the device and host
	// memory; 0: when its frame is needed.
	PageAge, HostPageAge time.Duration
	// Prefetch has pages fetched from the store ahead of observations that go on in order.
	Prefetch bool
}

func New(o Options) *Pool {
	f := &Pool{changed: broadcast.New()}
	for _, a := range o.Devices {
		f.devices = append(f.devices, newManagedDevice(o, a, f.changed))
	}
	f.shards, f.reserved = make([]int, len(o.Devices)), make([]int64, len(o.Devices))
	return f
}

// berth is a shard's place on a device.
type Placement struct {
	*slot
	budget   *pages.Budget
	evicted  <-chan struct{} // closed when it must leave
	pool     *Pool
	index    int   // index of the device
	reserved int64 // what is kept for it
}

// take gives a shard a place on the device that it belongs to now, and keeps room for its pages there. Give it back. An ErrEmergency says that no
// device takes any.
func (f *Pool) Take(ctx context.Context, need func() int64) (*Placement, error) {
	b := &Placement{pool: f}
	if len(f.devices) > 1 {
		b.reserved = need()
	}
	if b.index = f.choose(b.reserved); b.index < 0 {
		return nil, ErrEmergency
	}
	var err error
	if b.slot, b.evicted, err = f.devices[b.index].take(ctx); err != nil {
		b.unreserve()
		return nil, err
	}
	b.budget = b.slot.budget.WithArrival(b.allocated)
	return b, nil
}

// choose is the index of the device that a shard of so many bytes goes to, which are then kept for it; -1 where all are in an emergency.
// Devices that serve by themselves come before those for which the host serves; of these the one with the most room left for pages, less
// what is kept; of those with as much the one with the fewest shards, and then the first.
func (f *Pool) choose(need int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	best := -1
	var most rank
	for i, ds := range f.devices {
		now := ds.rank()
		now.free, now.shards = now.free-f.reserved[i], f.shards[i]
		if now.level < Emergency && (best < 0 || now.before(most)) {
			best, most = i, now
		}
	}
	if best >= 0 {
		f.reserved[best] += need
		f.shards[best]++
	}
	return best
}

// arrive has a shard take its memory, and keeps nothing for it any more.
func (b *Placement) allocated(take func()) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	take()
	b.pool.reserved[b.index] -= b.reserved
	b.reserved = 0
}

// leave gives up what the fleet knows of the shard.
func (b *Placement) unreserve() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.reserved[b.index] -= b.reserved
	b.pool.shards[b.index]--
	b.reserved = 0
}

// give gives the place back, once.
func (b *Placement) Release() {
	b.unreserve()
	b.of.release(b.slot)
}

// standing is what a device is chosen by.
type rank struct {
	level  Level
	free   int64 // bytes for pages
	shards int
}

// before says whether a device of this standing is chosen rather than one of another, which stands before it in the list.
func (s rank) before(o rank) bool {
	switch onHost, otherOnHost := s.level == OnHost, o.level == OnHost; {
	case onHost != otherOnHost:
		return otherOnHost
	case s.free != o.free:
		return s.free > o.free
	}
	return s.shards < o.shards
}

// standing is the device's now, but for the shards.
func (ds *managedDevice) rank() rank {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	which := ds.serving()
	if s := ds.slots[which]; s != nil {
		return rank{level: ds.state.level, free: s.budget.Room()}
	}
	return rank{level: ds.state.level, free: ds.budgets[which]().Room()}
}

// rooms returns the most bytes that one device has for pages, on it and in its part of host memory, and those of all together. known is false where
// a device has no budget.
func (f *Pool) Capacity() (most, all int64, known bool) {
	for _, ds := range f.devices {
		b := ds.budgets[primarySlot]()
		if b == nil {
			return 0, 0, false
		}
		onDevice, inHost := b.Size()
		room := onDevice + inHost
		most, all = max(most, room), all+room
	}
	return most, all, true
}

// free returns the most bytes that are left on one device.
func (f *Pool) Free() (most int64) {
	for _, ds := range f.devices {
		most = max(most, ds.rank().free)
	}
	return most
}

// takes reports whether a device takes work. A change of that rings the bell.
func (f *Pool) Accepts() bool {
	for _, ds := range f.devices {
		if ds.level() < Emergency {
			return true
		}
	}
	return false
}

// health says why no device takes work, of each; nil where one does.
func (f *Pool) Health() error {
	var errs []error
	for _, ds := range f.devices {
		err := ds.health()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// close gives up what was opened. No shard has a place any more.
func (f *Pool) Close() {
	for _, ds := range f.devices {
		ds.close()
	}
}

// Device returns the device of the placement.
func (b *Placement) Device() device.Device { return b.dev }

// Budget returns the memory for pages on the device of the placement.
func (b *Placement) Budget() *pages.Budget { return b.budget }

// OnHost reports whether the host device serves the shard because another device fails.
func (b *Placement) OnHost() bool { return b.which == hostSlot }

// Reduced reports whether the level of the device asks for smaller launches.
func (b *Placement) Reduced() bool { return b.of.level() >= Reduced }

// Left is closed when the shard must leave the device.
func (b *Placement) Evicted() <-chan struct{} { return b.evicted }

// Succeeded counts an operation that has ended well, and halved batches that the device had no memory
// for.
func (b *Placement) Succeeded(halved int) { b.of.succeeded(halved) }

// Failed counts the error that has ended the work on the device. Only errors of the device count.
func (b *Placement) Failed(err error) { b.of.failed(b.slot, err) }

// Levels returns the levels of the devices, in the order of Options.Devices.
func (f *Pool) Levels() []Level {
	var all []Level
	for _, ds := range f.devices {
		all = append(all, ds.level())
	}
	return all
}

// Devices returns the devices that the pool runs on, or comes back to from the host. Any may be closed at
// any time, and then answers so.
func (f *Pool) Devices() []device.Device {
	var all []device.Device
	for _, ds := range f.devices {
		all = append(all, ds.current())
	}
	return all
}

// Changed returns a channel that is closed when the level of a device changes.
func (f *Pool) Changed() <-chan struct{} { return f.changed.Next() }

// Monitor looks at the times of the levels and probes devices that serve no shards, until ctx ends.
func (f *Pool) Monitor(ctx context.Context) {
	var all sync.WaitGroup
	for _, ds := range f.devices {
		all.Go(func() { ds.monitor(ctx) })
	}
	all.Wait()
}
