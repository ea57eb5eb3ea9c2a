package pool

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
)

// managedDevice is one device of an agent with its replacements: the device that is opened after it
// broke, and the host device while neither works. Its methods may be called from several
// goroutines.
type managedDevice struct {
	log      *slog.Logger
	name     string // name of the device, in metrics and logs
	metrics  *Metrics
	given    device.Device // belongs to the caller
	open     func(ctx context.Context) (device.Device, error)
	openHost func(ctx context.Context) (device.Device, error) // nil: the device also serves at OnHost
	budgets  [2]func() *pages.Budget                          // by slot

	opening chan struct{} // taken by the goroutine that opens a device

	changed *pages.Broadcast // sent when the level changes

	mu        sync.Mutex
	state     degradation
	instances [2]*instance // by the constants below; nil: to be opened
	leaving   [2]*instance // the previous instances, until their last user has left
	unused    []*instance  // retired without users; locked closes them
}

// The two instances.
const (
	primary = iota
	onHost
)

type instance struct {
	of      *managedDevice
	which   int
	dev     device.Device
	owned   bool // closed when the last user has left
	budget  *pages.Budget
	weights *weights.Holder
	users   int
	evicted chan struct{} // closed when the users must leave
	gone    bool          // it accepts no user any more
	idle    chan struct{} // closed when it is gone and its device is closed
}

func newManagedDevice(o Options, own Accelerator, changed *pages.Broadcast) *managedDevice {
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
	ds.budgets[primary] = func() *pages.Budget {
		return pages.NewBudget(device, host).
			WithSharedMemory(own.Shared).
			WithAges(onDevice, inHost).
			WithPrefetch(prefetch)
	}
	ds.budgets[onHost] = func() *pages.Budget { // all of it is host memory
		if device > 0 && host > 1 {
			return pages.NewBudget(host/2, host/2).
				WithSharedMemory(true).
				WithAges(onDevice, inHost).
				WithPrefetch(prefetch)
		}
		return pages.NewBudget(device, 0).WithSharedMemory(true).WithPrefetch(prefetch)
	}
	ds.instances[primary] = ds.newInstance(primary, own.Device)
	ds.metrics.levelChanged(ds.name, 0) // so that the metric is shown
	return ds
}

// newInstance returns an instance with an unused budget. ds.mu is held.
func (ds *managedDevice) newInstance(which int, d device.Device) *instance {
	b := ds.budgets[which]()
	return &instance{
		of:      ds,
		which:   which,
		dev:     d,
		owned:   d != ds.given,
		budget:  b,
		weights: weights.NewHolder(d, b),
		evicted: make(chan struct{}),
		idle:    make(chan struct{}),
	}
}

func (ds *managedDevice) level() Level {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.state.level
}

// current returns the open device that is not the host device. While there is none, it returns the
// device of the caller.
func (ds *managedDevice) current() device.Device {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if s := ds.instances[primary]; s != nil {
		return s.dev
	}
	return ds.given
}

func (ds *managedDevice) health() error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.state.level < Emergency {
		return nil
	}
	failed, of := ds.state.share(ds.state.Now())
	return fmt.Errorf("%s: %w: %d of %d operations; it has given its shards back and takes none for now", ds.name,
		ErrEmergency, failed, of)
}

// take gives a shard the serving instance, and a channel that is closed when the shard must leave.
// The caller releases the instance. ErrEmergency: the device accepts no shard.
func (ds *managedDevice) take(ctx context.Context) (*instance, <-chan struct{}, error) {
	for {
		ds.mu.Lock()
		which := ds.serving()
		if ds.state.level == Emergency {
			ds.mu.Unlock()
			return nil, nil, ErrEmergency
		}
		if s := ds.instances[which]; s != nil {
			s.users++
			defer ds.mu.Unlock()
			return s, s.evicted, nil
		}
		ds.mu.Unlock()
		if err := ds.openInstance(ctx, which); err != nil {
			return nil, nil, err
		}
	}
}

// serving returns the index of the instance that serves shards. ds.mu is held.
func (ds *managedDevice) serving() int {
	if ds.state.level == OnHost && ds.openHost != nil {
		return onHost
	}
	return primary
}

// openInstance opens a device after its predecessor is closed: there may be no memory for both.
func (ds *managedDevice) openInstance(ctx context.Context, which int) error {
	select {
	case ds.opening <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-ds.opening }()
	ds.mu.Lock()
	there, before := ds.instances[which] != nil, ds.leaving[which]
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
	if which == onHost {
		open = ds.openHost
	}
	d, err := open(ctx)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = fmt.Errorf("%w: opening it again: %w", gpubatch.ErrDevice, err)
		if which == primary {
			ds.metrics.rebuilt(ds.name, err)
			before := ds.state.level
			ds.state.lost(ds.state.Now())
			ds.levelChanged(before, err)
		}
		return err
	}
	ds.leaving[which] = nil
	ds.instances[which] = ds.newInstance(which, d)
	if which == primary {
		ds.metrics.rebuilt(ds.name, nil)
	}
	p := d.Properties()
	ds.log.Info("device opened", "device", p.Name, "model", p.Model, "generation", p.Generation)
	return nil
}

func (ds *managedDevice) release(s *instance) {
	ds.mu.Lock()
	s.users--
	last := s.gone && s.users == 0
	ds.mu.Unlock()
	if last {
		ds.closeInstance(s)
	}
}

// retire ends an instance: it accepts no shard, and evicts its users. The last user closes it, or
// locked if it has none. ds.mu is held.
func (ds *managedDevice) retire(s *instance) {
	s.gone = true
	ds.instances[s.which], ds.leaving[s.which] = nil, s
	ds.evict(s)
	if s.users == 0 {
		ds.unused = append(ds.unused, s)
	}
}

// locked calls change with ds.mu, and then closes the instances that it has retired and that have
// no users.
func (ds *managedDevice) locked(change func()) {
	ds.mu.Lock()
	change()
	unused := ds.unused
	ds.unused = nil
	ds.mu.Unlock()
	for _, s := range unused {
		ds.closeInstance(s)
	}
}

// evict tells the users of an instance to leave. ds.mu is held.
func (ds *managedDevice) evict(s *instance) {
	if s == nil {
		return
	}
	close(s.evicted)
	s.evicted = make(chan struct{})
}

// closeInstance closes the device of an instance without users.
func (ds *managedDevice) closeInstance(s *instance) {
	if s.owned {
		if err := s.dev.Close(); err != nil {
			ds.log.Warn("closing a device", "device", s.dev.Properties().Name, "error", err)
		}
	}
	close(s.idle)
}

// succeeded counts an operation that ended well, and the batches that were halved for lack of
// memory.
func (ds *managedDevice) succeeded(halved int) {
	ds.metrics.failed(ds.name, gpubatch.ClassMemory, halved)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.state.done(ds.state.Now(), false)
}

// failed counts the error that ended work on an instance. Only errors of the device count, and only
// the first after it has broken: every shard on it fails for the same reason.
func (ds *managedDevice) failed(s *instance, err error) {
	class := gpubatch.ClassOf(gpubatch.Mark(err))
	if class == "" {
		return
	}
	ds.metrics.failed(ds.name, class, 1)
	ds.locked(func() {
		if s.gone {
			return
		}
		before := ds.state.level
		ds.state.done(ds.state.Now(), true)
		if class == gpubatch.ClassBroken {
			ds.retire(s)
		}
		ds.levelChanged(before, err)
	})
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
	for which, s := range ds.instances {
		if level == Emergency || which != ds.serving() {
			ds.evict(s)
		}
	}
}

// monitor lowers the level in time, and probes the device while it serves no shards, until ctx
// ends.
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
		ds.locked(func() {
			if before := ds.state.level; ds.state.lower(ds.state.Now()) {
				ds.levelChanged(before, nil)
			}
			if s := ds.instances[onHost]; s != nil && ds.state.level < OnHost { // it takes memory of the machine
				ds.retire(s)
			}
		})
	}
}

// probe tests the device that serves no shards, and opens it if necessary.
func (ds *managedDevice) probe(ctx context.Context) {
	ds.mu.Lock()
	s := ds.instances[primary]
	if s != nil {
		s.users++
	}
	ds.mu.Unlock()
	if s == nil {
		if err := ds.openInstance(ctx, primary); err != nil && ctx.Err() == nil {
			ds.log.Warn("the device cannot be opened; shards stay on the host", "error", err)
		}
		return // the next probe tests it
	}
	defer ds.release(s)
	err := check(ctx, s.dev)
	if ctx.Err() != nil {
		return
	}
	ds.locked(func() {
		ds.state.probed(ds.state.Now(), err == nil)
		if err != nil && !s.gone && gpubatch.ClassOf(err) == gpubatch.ClassBroken {
			ds.retire(s)
		}
	})
	if err != nil {
		ds.log.Warn("the device is not sound; shards stay on the host", "device", s.dev.Properties().Name, "error", err)
	}
}

// close closes what the device has opened. It has no users.
func (ds *managedDevice) close() {
	ds.locked(func() {
		for _, s := range ds.instances {
			if s != nil {
				ds.retire(s)
			}
		}
		ds.metrics.levelChanged(ds.name, -ds.state.level)
	})
}
