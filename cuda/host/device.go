// Package host is the host device: the contract of cuda/device in pure Go, on all cores.
//
// It is the default on machines without a GPU, the fallback for a failed one, and the oracle with
// which the CUDA device is compared. It runs the Go twins of kernels, which are in packages of
// their own: celltwin, fusiontwin, tallytwin, and here the twins of small ones.
//
// A stream is a goroutine with a queue. A launch is divided among the workers of the device's pool.
// A twin that panics breaks the device: from then on every call fails, as on a GPU after a fault.
//
// # Memory
//
// Device memory and pinned memory are memory of the process, which the garbage collector frees. The
// limit of the device counts both. Queued work has the memory itself and not the handle, so a
// buffer may be closed while work that uses it is queued. Each buffer is between two guards of 256
// bytes, and a guard that a kernel has overwritten is an error of Close, Release or Health.
//
// # Locks
//
// Locks are taken in this order: event.mu, stream.mu, buffer.mu, Device.mu. A goroutine that locks
// two buffers locks the one at the lower address first. graph.mu is held while the steps of a graph
// run, which take no lock.
package host

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

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Options configure Open. The zero value is a device with all cores and all memory of the machine.
type Options struct {
	// MemoryLimit is the maximum of bytes that Alloc and AllocHost together hold allocated; 0: the
	// machine's memory.
	MemoryLimit int64
	// Workers is the number of cores that a launch uses; 0: GOMAXPROCS.
	Workers int
	// Poison fills the memory of Alloc with PoisonByte, for tests.
	Poison bool
	// Logger gets the stack of a kernel that panicked; nil: slog.Default.
	Logger *slog.Logger
	// Requested and Reason go into the Properties: the device that was asked for, and why this one
	// is used in its place.
	Requested, Reason string
}

// Device is the host device, made by Open. All methods may be called from several goroutines at
// once.
type Device struct {
	props device.Properties
	limit int64
	log   *slog.Logger
	// poison is Options.Poison.
	poison bool
	pool   *pool

	// broken holds the first error of a kernel that panicked, or of a guard that was overwritten.
	// From then on the device refuses work, as a CUDA context does after a fault.
	broken atomic.Pointer[error]

	traffic device.Traffic

	mu      sync.Mutex // guards the fields below
	closed  bool
	used    int64                    // bytes of buffers that are open, or released and still in use by queued work
	buffers map[*buffer]struct{}     // open ones
	pinned  map[*hostBuffer]struct{} // open ones
	handles map[io.Closer]string     // streams, events and graphs, each with its kind
}

var _ device.Device = (*Device)(nil)

// Open starts a host device. The caller closes it.
func Open(opts Options) (*Device, error) {
	if opts.MemoryLimit < 0 || opts.Workers < 0 {
		return nil, fmt.Errorf("open host: memory limit %d, %d workers: %w", opts.MemoryLimit, opts.Workers,
			device.ErrInvalidArgument)
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Requested == "" {
		opts.Requested = "host"
	}
	_, total := systemMemory()
	if opts.MemoryLimit == 0 {
		opts.MemoryLimit = total
	}
	return &Device{
		props: device.Properties{
			Name:               "host",
			Requested:          opts.Requested,
			Reason:             opts.Reason,
			Model:              fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, opts.Workers),
			Multiprocessors:    opts.Workers,
			MemoryBytes:        total,
			MaxThreadsPerBlock: kernels.MaxThreads,
			Generation:         device.NextGeneration(),
		},
		limit:   opts.MemoryLimit,
		log:     opts.Logger,
		poison:  opts.Poison,
		pool:    newPool(opts.Workers),
		buffers: map[*buffer]struct{}{},
		pinned:  map[*hostBuffer]struct{}{},
		handles: map[io.Closer]string{},
	}, nil
}

// Properties returns the description of the device.
func (d *Device) Properties() device.Properties { return d.props }

// Memory returns the bytes that can be allocated now, and the limit. The machine may have less free
// than the limit leaves.
func (d *Device) Memory() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, 0, fmt.Errorf("memory of host: %w", device.ErrClosed)
	}
	available, _ := systemMemory()
	return max(min(d.limit-d.used, available), 0), d.limit, nil
}

// Alloc returns a buffer of n bytes, which starts at a multiple of 256 bytes. It fails with
// device.ErrOutOfMemory if the limit leaves less. Closing a buffer makes room at once, releasing it
// after the work of the stream. purpose names the buffer in logs, in Usage and in errors.
func (d *Device) Alloc(n int64, purpose string) (device.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("alloc %d bytes for %s: %w", n, purpose, device.ErrInvalidArgument)
	}
	if err := d.health("alloc"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("alloc %d bytes for %s on host: %w", n, purpose, device.ErrClosed)
	}
	if n > d.limit-d.used {
		return nil, fmt.Errorf("alloc %d bytes for %s on host: %d of %d in use: %w", n, purpose, d.used, d.limit,
			device.ErrOutOfMemory)
	}
	// The bytes that guard a buffer against overruns do not count against the limit of the device.
	b := &buffer{dev: d, purpose: purpose, size: n}
	b.whole, b.mem = guarded(n)
	if d.poison {
		fill(b.mem, PoisonByte)
	}
	d.used += n
	d.buffers[b] = struct{}{}
	device.MemoryEvent(d.log, "alloc", d.props.Name, purpose, n)
	return b, nil
}

// Kernel returns the twin of a built-in kernel. It fails with device.ErrNotSupported for a name
// that is not in the set. Kernels are not closed.
func (d *Device) Kernel(name string) (device.Kernel, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("kernel %s on host: %w", name, device.ErrClosed)
	}
	src, ok := kernels.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("kernel %q is not in the set: %w", name, device.ErrNotSupported)
	}
	of := twins.Lookup(name)
	if of == nil {
		return nil, fmt.Errorf("kernel %q has no twin on the host device: %w", name, device.ErrNotSupported)
	}
	return &kernel{dev: d, name: name, sig: src.Params, twin: of, src: src}, nil
}

// Compile fails, because the host does not run CUDA C++: with device.ErrInvalidArgument for a
// source that no device would accept, and with device.ErrNotSupported for others.
func (d *Device) Compile(name, source string, params ...device.Param) (device.Kernel, error) {
	found, _, err := device.ParseKernel(name, source)
	if err != nil {
		return nil, err
	}
	if params != nil {
		if err := device.CheckDeclared(name, params, found); err != nil {
			return nil, err
		}
	}
	if err := d.health("compile"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("compile %s on host: %w", name, device.ErrClosed)
	}
	return nil, fmt.Errorf("compile %s: the host device runs the kernels of the set and compiles none; open cuda:N "+
		"for others: %w", name, device.ErrNotSupported)
}

// CompileExact fails as Compile does.
func (d *Device) CompileExact(name, source string, params ...device.Param) (device.Kernel, error) {
	return d.Compile(name, source, params...)
}

// CompilePTX fails as Compile does.
func (d *Device) CompilePTX(name, text string, params ...device.Param) (device.Kernel, error) {
	if err := device.CheckPTX(name, text, params); err != nil {
		return nil, err
	}
	if err := d.health("load PTX"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("load PTX %s on host: %w", name, device.ErrClosed)
	}
	return nil, fmt.Errorf("load PTX %s: the host device runs the kernels of the set and no PTX; open cuda:N: %w", name,
		device.ErrNotSupported)
}

// NewStream opens a stream, which is one goroutine. Streams work at the same time, and share the
// workers of the device. The caller closes it.
func (d *Device) NewStream() (device.Stream, error) { return d.newStream(false) }

// NewBackgroundStream opens a stream whose launches leave cores to the launches of other streams.
// The caller closes it.
func (d *Device) NewBackgroundStream() (device.Stream, error) { return d.newStream(true) }

func (d *Device) newStream(background bool) (device.Stream, error) {
	if err := d.health("new stream"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("new stream on host: %w", device.ErrClosed)
	}
	s := newStream(d, background)
	d.handles[s] = "stream"
	return s, nil
}

// Usage returns the bytes of the open buffers and host buffers, by purpose.
func (d *Device) Usage() []device.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usageLocked()
}

// usageLocked is Usage with d.mu held.
func (d *Device) usageLocked() []device.Usage {
	by := device.UsageBy{}
	for b := range d.buffers {
		by.Add(b.purpose, b.size)
	}
	for b := range d.pinned {
		by.AddHost(b.purpose, b.size)
	}
	return by.List()
}

func (d *Device) forget(h io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.handles, h)
}

// Close waits for the work of every stream, ends the workers and releases all memory. It closes
// what is still open and returns device.ErrLeak for it. A second call does nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	errs := device.Leaks("host", d.usageLocked(), slices.Collect(maps.Values(d.handles)))
	var open []io.Closer
	for h, kind := range d.handles {
		if kind == "stream" {
			open = slices.Insert(open, 0, h) // first: the others may be in use by them
		} else {
			open = append(open, h)
		}
	}
	for b := range d.buffers {
		open = append(open, b)
	}
	for b := range d.pinned {
		open = append(open, b)
	}
	d.mu.Unlock()
	// Without the lock: handles take it when they close.
	for _, h := range open {
		errs = append(errs, h.Close())
	}
	d.pool.close()
	return errors.Join(errs...)
}

func (d *Device) health(op string) error {
	if p := d.broken.Load(); p != nil {
		return fmt.Errorf("%s on host: %w", op, *p)
	}
	return nil
}
