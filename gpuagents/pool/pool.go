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

// Pool is the devices of an agent. Each has a level, budgets and slots; the pool places shards on
// them. Its methods may be called from several goroutines. Locks are taken in the order Pool,
// managedDevice, pages.Budget.
type Pool struct {
	devices []*managedDevice
	changed *broadcast.Broadcast

	mu       sync.Mutex // guards what follows: a device is chosen when the needs of earlier shards are known
	shards   []int      // by device: shards that are placed there
	reserved []int64    // by device: bytes that are reserved for shards without an allocation
}

// Options configure a Pool.
type Options struct {
	// Devices are the devices of the agent, at least one.
	Devices []Accelerator
	// OpenHost opens a device that serves the shards while another device fails: the host device.
	// The pool owns and closes it. nil: there is none, and shards stay on their device.
	OpenHost func(ctx context.Context) (device.Device, error)
	// Patience sets the times of the levels.
	Patience Patience
	Logger   *slog.Logger
	// Metrics counts failures of devices; nil for none.
	Metrics *Metrics
	// HostPageMemory is how many bytes of host memory the pages of all devices may take; each
	// device has an equal part.
	HostPageMemory int64
	// PageAge and HostPageAge are the times without use after which a page leaves the device and
	// host memory; 0: when its frame is needed.
	PageAge, HostPageAge time.Duration
	// Prefetch fetches pages from the store ahead of observations that go on in order.
	Prefetch bool
}

// New returns a pool. It starts nothing; see Monitor. The caller closes it after all placements are
// released.
func New(o Options) *Pool {
	f := &Pool{changed: broadcast.New()}
	for _, a := range o.Devices {
		f.devices = append(f.devices, newManagedDevice(o, a, f.changed))
	}
	f.shards, f.reserved = make([]int, len(o.Devices)), make([]int64, len(o.Devices))
	return f
}

// Placement is the place of a shard on a device. It implements shard.Place.
type Placement struct {
	*slot
	budget   *pages.Budget
	evicted  <-chan struct{} // closed when the shard must leave
	pool     *Pool
	index    int      // index of the device
	reserved int64    // bytes that are reserved for the shard
	metrics  *Metrics // of a placement that shares the ticks of a shard; else nil
}

// Take places a shard on a device, and reserves the bytes that it needs for its pages. need is
// called if there are several devices. The caller releases the placement. An ErrEmergency says that
// no device accepts a shard.
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

// TakeAll places work on every device that serves by itself, or on one if none does, and reserves
// the bytes on each. The caller releases the placements. An ErrEmergency says that no device accepts
// work.
func (f *Pool) TakeAll(ctx context.Context, bytes int64) (all []*Placement, err error) {
	for i, ds := range f.devices {
		if ds.level() >= OnHost {
			continue
		}
		b := &Placement{pool: f, index: i, reserved: bytes}
		f.mu.Lock()
		f.reserved[i] += bytes
		f.shards[i]++
		f.mu.Unlock()
		if b.slot, b.evicted, err = ds.take(ctx); err != nil {
			b.unreserve()
			for _, taken := range all {
				taken.Release()
			}
			return nil, err
		}
		b.budget = b.slot.budget.WithArrival(b.allocated)
		all = append(all, b)
	}
	if len(all) > 0 {
		return all, nil
	}
	one, err := f.Take(ctx, func() int64 { return bytes })
	if err != nil {
		return nil, err
	}
	return []*Placement{one}, nil
}

// choose returns the index of the device for a shard of so many bytes, and reserves them; -1 if all
// devices are in an emergency. Devices that serve by themselves come first; then the device with
// the most bytes left, less what is reserved; then the one with the fewest shards; then the first.
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

// allocated runs the allocation of a shard, and ends its reservation.
func (b *Placement) allocated(take func()) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	take()
	b.pool.reserved[b.index] -= b.reserved
	b.reserved = 0
}

// unreserve removes the shard from the pool.
func (b *Placement) unreserve() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.reserved[b.index] -= b.reserved
	b.pool.shards[b.index]--
	b.reserved = 0
}

// Release gives the placement back. It is called once.
func (b *Placement) Release() {
	if b.metrics != nil {
		b.metrics.joined(b.of.name, -1)
	}
	b.unreserve()
	b.of.release(b.slot)
}

// rank orders devices for placement.
type rank struct {
	level  Level
	free   int64 // bytes for pages
	shards int
}

// before reports whether a device of this rank is chosen in place of an earlier one of another
// rank.
func (s rank) before(o rank) bool {
	switch onHost, otherOnHost := s.level == OnHost, o.level == OnHost; {
	case onHost != otherOnHost:
		return otherOnHost
	case s.free != o.free:
		return s.free > o.free
	}
	return s.shards < o.shards
}

// rank returns the rank of the device, without its shards.
func (ds *managedDevice) rank() rank {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	which := ds.serving()
	if s := ds.slots[which]; s != nil {
		return rank{level: ds.state.level, free: s.budget.Room()}
	}
	return rank{level: ds.state.level, free: ds.budgets[which]().Room()}
}

// Capacity returns the most bytes that one device has for pages, on it and in its part of host
// memory, and those of all devices. known is false if a device has no budget.
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

// Free returns the most bytes that are left on one device.
func (f *Pool) Free() (most int64) {
	for _, ds := range f.devices {
		most = max(most, ds.rank().free)
	}
	return most
}

// Accepts reports whether a device accepts work. Changed tells of changes.
func (f *Pool) Accepts() bool {
	for _, ds := range f.devices {
		if ds.level() < Emergency {
			return true
		}
	}
	return false
}

// Health returns an ErrEmergency for each device if none accepts work, else nil.
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

// Close closes what the pool has opened. All placements are released.
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

// Evicted returns a channel that is closed when the shard must leave the device.
func (b *Placement) Evicted() <-chan struct{} { return b.evicted }

// Succeeded counts an operation that has ended well, and halved batches that the device had no
// memory for.
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

// Devices returns the devices that the pool uses, or returns to from the host. Any of them may be
// closed at any time, and then answers so.
func (f *Pool) Devices() []device.Device {
	var all []device.Device
	for _, ds := range f.devices {
		all = append(all, ds.current())
	}
	return all
}

// Changed returns a channel that is closed when the level of a device changes.
func (f *Pool) Changed() <-chan struct{} { return f.changed.Next() }

// Monitor lowers levels and probes devices that serve no shards, until ctx ends. It runs once.
func (f *Pool) Monitor(ctx context.Context) {
	var all sync.WaitGroup
	for _, ds := range f.devices {
		all.Go(func() { ds.monitor(ctx) })
	}
	all.Wait()
}
