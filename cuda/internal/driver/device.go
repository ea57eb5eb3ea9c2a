//go:build cuda

package driver

/*
#include "supplement.h"
#include "nvml.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Device is one GPU with its own context. Open makes it.
type Device struct {
	props       device.Properties
	index       int
	limit       int64
	sharedOptin int           // bytes of shared memory that a block may have in all
	watchdog    time.Duration // how long a wait may last; 0: for ever
	log         *slog.Logger
	compiler    *nvrtc // nil: embedded PTX
	cache       *cubinCache

	// broken holds the first sticky error; from then on every call answers with it.
	broken atomic.Pointer[error]

	// life is held for reading during every call into the context, so that Close, which takes it
	// for writing, destroys the context under nobody. Locks are taken in the order life, a handle's
	// own, mu.
	life   sync.RWMutex
	closed bool
	buried bool // the context is destroyed, by Close or after a fault by the next Open
	ctx    cu.CUContext
	raw    C.CUcontext
	lanes  chan lane // what Read, Write, Fill and Copy run on; a call takes one and puts it back

	loading sync.Mutex // serialises loading, and compiling kernels of the set
	// compiling has the caller's sources that are being compiled, by their key; guarded by loading.
	compiling map[string]chan struct{}
	kernels   map[string]*kernel

	pool pool

	blas      blas
	blasNames []string

	nvmlMu    sync.Mutex
	nvml      *C.exo_nvml // nil before the first Health, and without NVML
	xids      xidLog      // guarded by nvmlMu
	traffic   device.Traffic
	nvmlTried bool

	noBatch atomic.Bool // the driver has no call for many copies

	mu      sync.Mutex
	friends map[uint64]bool // generations of openings of other GPUs that befriend knows
	buffers map[*buffer]struct{}
	pinned  map[*hostBuffer]struct{}
	handles map[io.Closer]string  // streams, events and graphs, each with its kind
	idle    [2][]C.CUstream       // streams that were closed, by rank, for the next stream
	stuck   map[*stream]time.Time // streams whose work the watchdog has reported, and since when they were waited for
}

// lane is a stream of the device's own, with EXO_STAGING bytes of pinned memory.
type lane struct {
	stream  C.CUstream
	staging *hostBuffer
}

var _ device.Device = (*Device)(nil)

// Properties describes the device.
func (d *Device) Properties() device.Properties { return d.props }

// acquire holds the device open for one call; the caller releases it with d.life.RUnlock. It fails
// on a closed and on a broken device.
func (d *Device) acquire(op string) error {
	d.life.RLock()
	if d.closed {
		d.life.RUnlock()
		return fmt.Errorf("%s on %s: %w", op, d.props.Name, device.ErrClosed)
	}
	if p := d.broken.Load(); p != nil {
		d.life.RUnlock()
		return fmt.Errorf("%s on %s: %w", op, d.props.Name, *p)
	}
	return nil
}

// enter runs fn with the context current on its thread, for calls through gorgonia.org/cu. The
// device is acquired.
func (d *Device) enter(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return err
	}
	return fn()
}

// Memory queries the driver. Free is at most the rest of the limit.
func (d *Device) Memory() (free, total int64, err error) {
	if err := d.acquire("memory"); err != nil {
		return 0, 0, err
	}
	defer d.life.RUnlock()
	err = d.enter(func() error {
		free, total, err = cu.MemInfo()
		return err
	})
	if err := d.failCu(err, "cuMemGetInfo"); err != nil {
		return 0, 0, err
	}
	reserved, cached := d.pool.sizes()
	free = min(free+cached, total) // what is cached can be had
	if d.limit < d.props.MemoryBytes {
		return min(free, max(d.limit-reserved+cached, 0)), min(total, d.limit), nil
	}
	return free, total, nil
}

// Usage sums the open buffers by purpose.
func (d *Device) Usage() []device.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	by := device.UsageBy{}
	for b := range d.buffers {
		by.Add(b.purpose, b.size)
	}
	for b := range d.pinned {
		by.AddHost(b.purpose, b.size)
	}
	return by.List()
}

// forget takes a handle that is closed off the list.
func (d *Device) forget(h io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.handles, h)
}

// Close waits for the work of the device and destroys its context, and with it all memory. What was
// still open is ErrLeak. A broken device is closed without a word about its state, which its calls
// have told. Work that the watchdog does not allow is ErrTimeout with ErrRestart: the context and
// its memory then stay, because destroying it would wait too.
func (d *Device) Close() error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.closeSensors()
	errs := device.Leaks(d.props.Name, d.Usage(), slices.Collect(maps.Values(d.handles)))
	var stuck error
	if d.broken.Load() == nil {
		if stuck = d.settle(); stuck == nil {
			errs = append(errs, d.failCu(d.enter(cu.Synchronize), "cuCtxSynchronize"))
		}
	}
	switch {
	case stuck != nil: // the work may still write to memory of the host
		errs = append(errs, stuck)
		d.buried = true
	case d.broken.Load() == nil:
		errs = append(errs, d.closeBlas(), d.unpin(), d.bury())
	default:
		errs = append(errs, d.bury(), d.unpin())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.buffers {
		b.closed.Store(true)
	}
	for b := range d.pinned {
		b.closed.Store(true)
	}
	for h := range d.handles {
		switch h := h.(type) {
		case *stream:
			h.closed.Store(true)
		case *event:
			h.closed.Store(true)
		case *graph:
			h.closed.Store(true)
		}
	}
	clear(d.buffers)
	clear(d.pinned)
	clear(d.handles)
	return errors.Join(errs...)
}

// unpin gives all pinned memory back: before the context goes, so that no trace of it stays in the
// driver.
func (d *Device) unpin() error {
	var errs []error
	for len(d.lanes) > 0 {
		l := <-d.lanes
		errs = append(errs, l.staging.unpin())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.pinned {
		errs = append(errs, b.unpin())
	}
	return errors.Join(errs...)
}
