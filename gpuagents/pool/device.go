package pool

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/broadcast"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// managedDevice is one device of an agent with its replacements: the device that is opened after it
// broke, and the host device while neither works. Its methods may be called from several
// goroutines.
type managedDevice struct {
	log      *slog.Logger
	name     string // of the device, in metrics and logs
	metrics  *Metrics
	given    device.Device // belongs to the caller
	open     func(ctx context.Context) (device.Device, error)
	openHost func(ctx context.Context) (device.Device, error) // nil: the device also serves at OnHost
	budgets  [2]func() *pages.Budget                          // by slot

	opening chan struct{} // taken by the goroutine that opens a device

	changed *broadcast.Broadcast // is sent when the level changes

	mu      sync.Mutex
	state   degradation
	slots   [2]*slot // by the constants below; nil: to be opened
	leaving [2]*slot // the slots before them, until their last shard has left
}

// The two slots.
const (
	primarySlot = iota
	hostSlot
)

// slot is an open device with the shards on it.
type slot struct {
	of      *managedDevice
	which   int
	dev     device.Device
	owned   bool // it is closed when the last shard has left
	budget  *pages.Budget
	users   int
	evicted chan struct{} // closed when the shards on it must leave
	gone    bool          // it accepts no shard any more
	idle    chan struct{} // closed when it is gone and its device is closed
}

// newManagedDevice begins with the device of the caller.
func newManagedDevice(o Options, own Accelerator, changed *broadcast.Broadcast) *managedDevice {
	parts := len(o.Devices) // they share the host memory
	ds := &managedDevice{
		log:      o.Logger,
		name:     own.Device.Properties().Name,
		metrics:  o.Metrics,
		given:    own.Device,
		open:     own.Open,
		openHost: o.OpenHost,
		opening:  make(chan struct{}, 1), changed: changed, state: degradation{Patience: o.Patience.withDefaults()},
	}
	if parts > 1 {
		ds.log = o.Logger.With("of", ds.name)
	}
	if ds.open == nil {
		ds.open = func(context.Context) (device.Device, error) { return own.Device, nil }
	}
	device, host := own.PageMemory, o.HostPageMemory/int64(parts)
	onDevice, inHost, prefetch := o.PageAge, o.HostPageAge, o.Prefetch
	ds.budgets[primarySlot] = func() *pages.Budget {
		return pages.NewBudget(device, host).
			WithSharedMemory(own.Shared).
			WithAges(onDevice, inHost).
			WithPrefetch(prefetch)
	}
	ds.budgets[hostSlot] = func() *pages.Budget { // all of it is host memory
		if device > 0 && host > 1 {
			return pages.NewBudget(host/2, host/2).
				WithSharedMemory(true).
				WithAges(onDevice, inHost).
				WithPrefetch(prefetch)
		}
		return pages.NewBudget(device, 0).WithSharedMemory(true).WithPrefetch(prefetch)
	}
	ds.slots[primarySlot] = ds.newSlot(primarySlot, own.Device)
	ds.metrics.levelChanged(ds.name, 0) // so that the metric is shown
	return ds
}

// newSlot returns a slot with a whole budget. ds.mu is held.
func (ds *managedDevice) newSlot(which int, d device.Device) *slot {
	return &slot{
		of:      ds,
		which:   which,
		dev:     d,
		owned:   d != ds.given,
		budget:  ds.budgets[which](),
		evicted: make(chan struct{}),
		idle:    make(chan struct{}),
	}
}

// level returns the level of the device.
func (ds *managedDevice) level() Level {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.state.level
}

// current returns the open device that is not the host device, or the one of the caller while there
// is none.
func (ds *managedDevice) current() device.Device {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if s := ds.slots[primarySlot]; s != nil {
		return s.dev
	}
	return ds.given
}

// health returns an ErrEmergency if the device accepts no work.
func (ds *managedDevice) health() error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.state.level < Emergency {
		return nil
	}
	failed, of := ds.state.share(ds.state.Now())
	return fmt.Errorf(
		"%s: %w: %d of %d operations; it has given its shards back and takes none for now", ds.name,
		ErrEmergency, failed, of,
	)
}

// take gives a shard the current slot, and a channel that is closed when it must leave. The caller
// releases the slot. An ErrEmergency says that the device accepts no shard.
func (ds *managedDevice) take(ctx context.Context) (*slot, <-chan struct{}, error) {
	for {
		ds.mu.Lock()
		which := ds.serving()
		if ds.state.level == Emergency {
			ds.mu.Unlock()
			return nil, nil, ErrEmergency
		}
		if s := ds.slots[which]; s != nil {
			s.users++
			defer ds.mu.Unlock()
			return s, s.evicted, nil
		}
		ds.mu.Unlock()
		if err := ds.openSlot(ctx, which); err != nil {
			return nil, nil, err
		}
	}
}

// serving returns the slot that shards belong to. ds.mu is held.
func (ds *managedDevice) serving() int {
	if ds.state.level == OnHost && ds.openHost != nil {
		return hostSlot
	}
	return primarySlot
}

// openSlot opens the device of a slot after its predecessor is closed: there may be no memory for
// both.
func (ds *managedDevice) openSlot(ctx context.Context, which int) error {
	select {
	case ds.opening <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-ds.opening }()
	ds.mu.Lock()
	there, before := ds.slots[which] != nil, ds.leaving[which]
	ds.mu.Unlock()
	if there {
		return nil
	}
	if before != nil {
		select {
		case <-before.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	open := ds.open
	if which == hostSlot {
		open = ds.openHost
	}
	d, err := open(ctx)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = fmt.Errorf("%w: opening it again: %w", fault.ErrDevice, err)
		if which == primarySlot {
			ds.metrics.rebuilt(ds.name, err)
			before := ds.state.level
			ds.state.lost(ds.state.Now())
			ds.levelChanged(before, err)
		}
		return err
	}
	ds.leaving[which] = nil
	ds.slots[which] = ds.newSlot(which, d)
	if which == primarySlot {
		ds.metrics.rebuilt(ds.name, nil)
	}
	p := d.Properties()
	ds.log.Info("device opened", "device", p.Name, "model", p.Model, "generation", p.Generation)
	return nil
}

// release gives back a slot that take has returned.
func (ds *managedDevice) release(s *slot) {
	ds.mu.Lock()
	s.users--
	last := s.gone && s.users == 0
	ds.mu.Unlock()
	if last {
		ds.closeSlot(s)
	}
}

// retire ends a slot: it accepts no shard, and evicts those on it. ds.mu is held. The caller calls
// end, which may be nil, without ds.mu.
func (ds *managedDevice) retire(s *slot) (end func()) {
	s.gone = true
	ds.slots[s.which], ds.leaving[s.which] = nil, s
	ds.evict(s)
	if s.users > 0 {
		return nil // the last shard does it
	}
	return func() { ds.closeSlot(s) }
}

// evict tells the shards of a slot to leave. ds.mu is held.
func (ds *managedDevice) evict(s *slot) {
	if s == nil {
		return
	}
	close(s.evicted)
	s.evicted = make(chan struct{})
}

// closeSlot closes the device of a slot without shards.
func (ds *managedDevice) closeSlot(s *slot) {
	if s.owned {
		if err := s.dev.Close(); err != nil {
			ds.log.Warn("closing a device", "device", s.dev.Properties().Name, "error", err)
		}
	}
	close(s.idle)
}

// succeeded counts an operation that ended well, and the batches that the device had no memory for.
func (ds *managedDevice) succeeded(halved int) {
	ds.metrics.failed(ds.name, fault.ClassMemory, halved)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.state.done(ds.state.Now(), false)
}

// failed counts the error that ended work in a slot. Errors that are not of the device do not
// count, nor do those after a device has broken: every shard on it fails for the same reason.
func (ds *managedDevice) failed(s *slot, err error) {
	class := fault.ClassOf(fault.Mark(err))
	if class == "" {
		return
	}
	ds.metrics.failed(ds.name, class, 1)
	var end func()
	ds.mu.Lock()
	if !s.gone {
		before := ds.state.level
		ds.state.done(ds.state.Now(), true)
		if class == fault.ClassBroken {
			end = ds.retire(s)
		}
		ds.levelChanged(before, err)
	}
	ds.mu.Unlock()
	if end != nil {
		end()
	}
}

// levelChanged acts on a change of the level, if there was one. ds.mu is held.
func (ds *managedDevice) levelChanged(before Level, cause error) {
	level := ds.state.level
	if level == before {
		return
	}
	failed, of := ds.state.share(ds.state.Now())
	attrs := []any{"from", before.String(), "to", level.String(), "failed", failed, "of", of, "error", cause}
	if level > before {
		ds.log.Warn("the device fails: level entered", attrs...)
	} else {
		ds.log.Info("nothing has failed for a while: level left", attrs[:len(attrs)-2]...)
	}
	ds.metrics.levelChanged(ds.name, level-before)
	ds.changed.Send()
	for which, s := range ds.slots {
		if level == Emergency || which != ds.serving() {
			ds.evict(s)
		}
	}
}

// monitor looks at the time, and probes the device while it serves no shards, until ctx ends.
func (ds *managedDevice) monitor(ctx context.Context) {
	t := time.NewTicker(ds.state.Probe)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if ds.level() == OnHost {
			ds.probe(ctx)
		}
		var end func()
		ds.mu.Lock()
		if before := ds.state.level; ds.state.lower(ds.state.Now()) {
			ds.levelChanged(before, nil)
		}
		if s := ds.slots[hostSlot]; s != nil && ds.state.level < OnHost { // its memory is that of the machine
			end = ds.retire(s)
		}
		ds.mu.Unlock()
		if end != nil {
			end()
		}
	}
}

// probe tests the device that serves no shards, and opens it if necessary.
func (ds *managedDevice) probe(ctx context.Context) {
	ds.mu.Lock()
	s := ds.slots[primarySlot]
	if s != nil {
		s.users++
	}
	ds.mu.Unlock()
	if s == nil {
		if err := ds.openSlot(ctx, primarySlot); err != nil && ctx.Err() == nil {
			ds.log.Warn("the device cannot be opened; shards stay on the host", "error", err)
		}
		return // the next probe tests it
	}
	defer ds.release(s)
	err := check(ctx, s.dev)
	if ctx.Err() != nil {
		return
	}
	var end func()
	ds.mu.Lock()
	ds.state.probed(ds.state.Now(), err == nil)
	if err != nil && !s.gone && fault.ClassOf(err) == fault.ClassBroken {
		end = ds.retire(s)
	}
	ds.mu.Unlock()
	if end != nil {
		end()
	}
	if err != nil {
		ds.log.Warn("the device is not sound; shards stay on the host", "device", s.dev.Properties().Name, "error", err)
	}
}

// close closes what was opened. No shard is on the device.
func (ds *managedDevice) close() {
	ds.mu.Lock()
	var ends []func()
	for _, s := range ds.slots {
		if s != nil {
			ends = append(ends, ds.retire(s))
		}
	}
	ds.metrics.levelChanged(ds.name, -ds.state.level)
	ds.mu.Unlock()
	for _, end := range ends {
		if end != nil {
			end()
		}
	}
}
