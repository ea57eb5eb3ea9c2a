// Package pool places shards on the devices of an agent, and replaces devices that fail.
package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
)

// Pool is the devices of an agent. Each has a level, budgets and instances; the pool places shards
// on them. Its methods may be called from several goroutines. Locks are taken in the order Pool,
// managedDevice, pages.Budget.
type Pool struct {
	devices []*managedDevice
	changed *pages.Broadcast

	mu       sync.Mutex // guards the fields below: a device is chosen when the needs of earlier shards are known
	shards   []int      // by device: shards that have a slot there
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
	// Prefetch fetches pages from the store ahead of sequential observations.
	Prefetch bool
}

// New returns a pool. It starts nothing; see Monitor. The caller closes it after all placements are
// released.
func New(o Options) *Pool {
	f := &Pool{changed: pages.NewBroadcast()}
	for _, a := range o.Devices {
		f.devices = append(f.devices, newManagedDevice(o, a, f.changed))
	}
	f.shards, f.reserved = make([]int, len(o.Devices)), make([]int64, len(o.Devices))
	return f
}

// Slot is the place of a shard on a device. It implements shard.Place.
type Slot struct {
	*instance
	budget   *pages.Budget
	evicted  <-chan struct{} // closed when the shard must leave
	pool     *Pool
	index    int      // index of the device
	reserved int64    // bytes that are reserved for the shard
	metrics  *Metrics // metrics of a slot that shares the ticks of a shard; else nil
}

// Take takes a slot for a shard on a device, and reserves the bytes that it needs for its pages.
// need is called if there are several devices. The caller releases the slot. ErrEmergency: no
// device accepts a shard.
func (f *Pool) Take(ctx context.Context, need func() int64) (*Slot, error) {
	b := &Slot{pool: f}
	if len(f.devices) > 1 {
		b.reserved = need()
	}
	if b.index = f.choose(b.reserved); b.index < 0 {
		return nil, ErrEmergency
	}
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// take takes the instance that serves on the device of the slot. After an error nothing is
// reserved.
func (b *Slot) take(ctx context.Context) (err error) {
	if b.instance, b.evicted, err = b.pool.devices[b.index].take(ctx); err != nil {
		b.unreserve()
		return err
	}
	b.budget = b.instance.budget.WithArrival(b.allocated)
	return nil
}

// TakeAll takes a slot on every device that serves by itself, or on one if none does, and reserves
// the bytes on each. The caller releases the slots. ErrEmergency: no device accepts work.
func (f *Pool) TakeAll(ctx context.Context, bytes int64) (all []*Slot, err error) {
	for i, ds := range f.devices {
		if ds.level() >= OnHost {
			continue
		}
		b := &Slot{pool: f, index: i, reserved: bytes}
		f.mu.Lock()
		f.reserve(i, bytes)
		f.mu.Unlock()
		if err = b.take(ctx); err != nil {
			for _, taken := range all {
				taken.Release()
			}
			return nil, err
		}
		all = append(all, b)
	}
	if len(all) > 0 {
		return all, nil
	}
	one, err := f.Take(ctx, func() int64 { return bytes })
	if err != nil {
		return nil, err
	}
	return []*Slot{one}, nil
}

// choose returns the index of the device for a shard, and reserves need bytes there; -1 if all
// devices are in an emergency. It prefers devices that serve by themselves, then the one with the
// most unreserved bytes, then the one with the fewest shards, then the first.
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
		f.reserve(best, need)
	}
	return best
}

// reserve counts a shard on a device, and reserves its bytes. f.mu is held.
func (f *Pool) reserve(index int, bytes int64) {
	f.reserved[index] += bytes
	f.shards[index]++
}

// allocated runs the allocation of a shard, and ends its reservation atomically.
func (b *Slot) allocated(take func()) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	take()
	b.pool.reserved[b.index] -= b.reserved
	b.reserved = 0
}

func (b *Slot) unreserve() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.reserved[b.index] -= b.reserved
	b.pool.shards[b.index]--
	b.reserved = 0
}

// Release gives the placement back. It is called once.
func (b *Slot) Release() {
	if b.metrics != nil {
		b.metrics.joined(b.of.name, -1)
	}
	b.unreserve()
	b.of.release(b.instance)
}

type rank struct {
	level  Level
	free   int64 // bytes for pages
	shards int
}

// before reports whether a device of this rank is preferred to an earlier device of rank o.
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
	if s := ds.instances[which]; s != nil {
		return rank{level: ds.state.level, free: s.budget.Room()}
	}
	return rank{level: ds.state.level, free: ds.budgets[which]().Room()}
}

// Capacity returns the bytes for pages, on the device and in its part of host memory: of the
// largest device, and of all devices. known is false if a device has no budget.
func (f *Pool) Capacity() (most, all int64, known bool) {
	for _, ds := range f.devices {
		b := ds.budgets[primary]()
		if b == nil {
			return 0, 0, false
		}
		onDevice, inHost := b.Size()
		room := onDevice + inHost
		most, all = max(most, room), all+room
	}
	return most, all, true
}

// Free returns the bytes that are left on the device with the most room.
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
func (b *Slot) Device() device.Device { return b.dev }

// Budget returns the memory for pages on the device of the placement.
func (b *Slot) Budget() *pages.Budget { return b.budget }

// Weights returns the models on the device of the placement. They are released before the
// placement.
func (b *Slot) Weights() *weights.Holder { return b.weights }

// OnHost reports whether the host device serves the shard because another device fails.
func (b *Slot) OnHost() bool { return b.which == onHost }

// Reduced reports whether the level of the device asks for smaller launches.
func (b *Slot) Reduced() bool { return b.of.level() >= Reduced }

// Evicted returns a channel that is closed when the shard must leave the device.
func (b *Slot) Evicted() <-chan struct{} { return b.evicted }

// Succeeded counts an operation that has ended well, and halved batches that the device had no
// memory for.
func (b *Slot) Succeeded(halved int) { b.of.succeeded(halved) }

// Failed counts the error that has ended the work on the device. Only errors of the device count.
func (b *Slot) Failed(err error) { b.of.failed(b.instance, err) }

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
