//go:build cuda

package driver

/*
#include <stdlib.h>
#include "nccl.h"
#include "supplement.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// ncclNames are the sonames of NCCL.
var ncclNames = []string{"libnccl.so.2", "libnccl.so"}

// ncclStaging is the memory of a rank in the primary context: large enough that a call of the
// library, some 20 us, is short compared with moving it, and a thousandth of a GPU's memory.
const ncclStaging = 32 << 20

// librariesOfNCCL holds the opened library; it stays open for the life of the process.
var librariesOfNCCL struct {
	sync.Mutex
	by map[string]*nccl
}

type nccl struct {
	lib     *C.exo_nccl
	version int // 22803 for 2.28.3
}

// findNCCL opens the first library of the list that is there; nil when none is. It has NCCL use no
// NVLink multicast, which not all containers have, and where it then hangs or fails; and listen on
// the loopback interface alone, since all ranks are this process. Variables that the user has set
// stay: NCCL_NVLS_ENABLE, NCCL_SOCKET_IFNAME.
func findNCCL(names []string) *nccl {
	librariesOfNCCL.Lock()
	defer librariesOfNCCL.Unlock()
	for _, name := range names {
		if n := librariesOfNCCL.by[name]; n != nil {
			return n
		}
		cname := C.CString(name)
		var version C.int
		lib := C.exo_nccl_open(cname, &version)
		C.free(unsafe.Pointer(cname))
		if lib == nil {
			continue
		}
		if librariesOfNCCL.by == nil {
			librariesOfNCCL.by = map[string]*nccl{}
		}
		librariesOfNCCL.by[name] = &nccl{lib, int(version)}
		return librariesOfNCCL.by[name]
	}
	return nil
}

// Collective is a device.Collective of GPUs by NCCL. Make it with OpenNCCL.
type Collective struct {
	nccl    *nccl
	devices []device.Device
	gpus    []*Device
	order   []*Device    // gpus by generation, which is the order of locks; see pair
	ranks   []C.exo_rank // Go memory without pointers to Go memory
	broken  error        // of the connection; nil: it works
	closed  bool
}

var _ device.Collective = (*Collective)(nil)

// OpenNCCL makes a collective of different GPUs, with 32 MiB of memory of each that is not counted
// against its limit, and what NCCL takes. names are where the library is looked for, in order; nil:
// the installed ones, or what EXOSWARM_LIBNCCL names. What NCCL cannot serve is ErrNotSupported:
// other devices, one GPU twice, no library, or one that does not start. It takes seconds; where ctx
// ends before, started work continues and is then abandoned.
func OpenNCCL(ctx context.Context, devices []device.Device, names []string) (_ *Collective, err error) {
	if err := device.CheckRanks(devices); err != nil {
		return nil, err
	}
	c := &Collective{devices: slices.Clone(devices)}
	indices := make([]C.int, len(devices))
	for rank, d := range devices {
		gpu, ok := d.(*Device)
		if !ok {
			return nil, fmt.Errorf("NCCL: %s is no GPU: %w", d.Properties().Name, device.ErrNotSupported)
		}
		for _, other := range c.gpus {
			if other.index == gpu.index {
				return nil, fmt.Errorf("NCCL: ranks of one GPU, %s: %w", gpu.props.Name, device.ErrNotSupported)
			}
		}
		c.gpus = append(c.gpus, gpu)
		indices[rank] = C.int(gpu.index)
	}
	if name := os.Getenv("EXOSWARM_LIBNCCL"); names == nil && name != "" {
		names = []string{name}
	} else if names == nil {
		names = ncclNames
	}
	if c.nccl = findNCCL(names); c.nccl == nil {
		return nil, fmt.Errorf("NCCL: none of %q can be opened: install it, or set EXOSWARM_LIBNCCL: %w", names,
			device.ErrNotSupported)
	}
	c.order = slices.SortedFunc(slices.Values(c.gpus),
		func(a, b *Device) int { return int(int64(a.props.Generation - b.props.Generation)) })
	unlock, err := c.acquire("open a collective")
	if err != nil {
		return nil, err
	}
	defer unlock()
	comms, err := c.nccl.init(ctx, indices)
	if err != nil {
		return nil, err
	}
	c.ranks = make([]C.exo_rank, len(devices))
	for rank, gpu := range c.gpus {
		c.ranks[rank].own, c.ranks[rank].comm = gpu.raw, comms[rank]
	}
	for rank, gpu := range c.gpus {
		if err := gpu.fail(C.exo_rank_open(&c.ranks[rank], C.int(gpu.index), ncclStaging), "open rank %d of a "+
			"collective, with %d bytes", rank, ncclStaging); err != nil {
			return nil, errors.Join(err, c.release(false))
		}
	}
	for _, gpu := range c.gpus {
		gpu.mu.Lock()
		gpu.handles[c] = "collective"
		gpu.mu.Unlock()
	}
	return c, nil
}

// init makes the communicators. The call knows no context.
func (n *nccl) init(ctx context.Context, gpus []C.int) ([]unsafe.Pointer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("NCCL: start: %w", err)
	}
	type outcome struct {
		comms []unsafe.Pointer
		code  C.int
	}
	done := make(chan outcome, 1)
	go func() {
		size := C.size_t(len(gpus)) * C.size_t(unsafe.Sizeof(unsafe.Pointer(nil)))
		out := C.calloc(1, size)
		defer C.free(out)
		o := outcome{code: C.exo_nccl_init(n.lib, (*unsafe.Pointer)(out), C.int(len(gpus)), &gpus[0])}
		o.comms = slices.Clone(unsafe.Slice((*unsafe.Pointer)(out), len(gpus)))
		done <- o
	}()
	select {
	case o := <-done:
		if o.code != 0 { // a library that does not start on this machine is as good as none
			n.destroy(o.comms)
			return nil, fmt.Errorf("NCCL %s: start on %d GPUs: %s (%d): NCCL_DEBUG=WARN says more: %w", n, len(gpus),
				C.GoString(C.exo_nccl_error_name(n.lib, o.code)), int(o.code), device.ErrNotSupported)
		}
		return o.comms, nil
	case <-ctx.Done():
		go func() { n.destroy((<-done).comms) }()
		return nil, fmt.Errorf("NCCL %s: start on %d GPUs: %w", n, len(gpus), ctx.Err())
	}
}

// destroy gives communicators up that nobody uses.
func (n *nccl) destroy(comms []unsafe.Pointer) {
	for _, comm := range comms {
		if comm != nil {
			C.exo_nccl_abort(n.lib, comm)
		}
	}
}

// String is the version.
func (n *nccl) String() string {
	return fmt.Sprintf("%d.%d.%d", n.version/10000, n.version/100%100, n.version%100)
}

// Devices are the ranks.
func (c *Collective) Devices() []device.Device { return c.devices }

// Route is "nccl".
func (c *Collective) Route() device.Route {
	return device.Route{Name: "nccl", Reason: "NCCL " + c.nccl.String()}
}

// acquire holds all devices open for one call.
func (c *Collective) acquire(op string) (unlock func(), err error) {
	for i, d := range c.order {
		if err := d.acquire(op); err != nil {
			for _, held := range c.order[:i] {
				held.life.RUnlock()
			}
			return nil, err
		}
	}
	return func() {
		for _, d := range c.order {
			d.life.RUnlock()
		}
	}, nil
}

// Sum is ncclAllReduce.
func (c *Collective) Sum(ctx context.Context, element device.Kind, n int64, places []device.Place) error {
	bytes, err := device.CheckSum(len(c.gpus), element, n, places)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("sum of %d elements of %v over %d GPUs", n, element, len(c.gpus))
	return c.run(ctx, what, bytes, places, func(ranks *C.exo_rank) C.int {
		return C.exo_nccl_sum(c.nccl.lib, ranks, C.int(len(c.ranks)), C.size_t(n), C.int(device.ElementBytes(element)),
			ncclStaging)
	})
}

// Gather is ncclAllGather.
func (c *Collective) Gather(ctx context.Context, n int64, places []device.Place) error {
	if err := device.CheckCollective("gather", len(c.gpus), n, int64(len(c.gpus)), places); err != nil {
		return err
	}
	what := fmt.Sprintf("gather %d bytes from each of %d GPUs", n, len(c.gpus))
	return c.run(ctx, what, n, places, func(ranks *C.exo_rank) C.int {
		return C.exo_nccl_gather(c.nccl.lib, ranks, C.int(len(c.ranks)), C.size_t(n), ncclStaging)
	})
}

// run puts a call into the streams of the places and waits for it.
func (c *Collective) run(ctx context.Context, what string, n int64, places []device.Place,
	put func(*C.exo_rank) C.int,
) error {
	switch {
	case c.closed:
		return fmt.Errorf("%s: collective: %w", what, device.ErrClosed)
	case c.broken != nil:
		return fmt.Errorf("%s: %w", what, c.broken)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n == 0 {
		return nil
	}
	streams := make([]*stream, len(places))
	for rank, p := range places {
		s, ok := p.Stream.(*stream)
		if !ok || s == nil || s.dev != c.gpus[rank] {
			return fmt.Errorf("%s: rank %d: a stream of another device: %w", what, rank, device.ErrInvalidArgument)
		}
		b, err := deviceMemory(p.Buffer, s.dev)
		if err != nil {
			return fmt.Errorf("%s: rank %d: %w", what, rank, err)
		}
		streams[rank] = s
		c.ranks[rank].at, c.ranks[rank].stream = b.ptr+C.CUdeviceptr(p.Off), s.raw
	}
	if err := c.put(what, streams, put); err != nil {
		return err
	}
	for _, s := range streams {
		if err := c.wait(ctx, what, s); err != nil {
			return err
		}
	}
	return nil
}

// put has the streams and their devices open while work goes into them.
func (c *Collective) put(what string, streams []*stream, put func(*C.exo_rank) C.int) error {
	unlock, err := c.acquire(what)
	if err != nil {
		return err
	}
	defer unlock()
	for _, s := range streams {
		if err := s.enter(what); err != nil {
			return err
		}
		defer s.mu.Unlock()
		if s.recording != nil {
			return s.recording.note(fmt.Errorf("%s in a capture: %w", what, device.ErrInvalidArgument))
		}
	}
	return c.fail(what, put(&c.ranks[0]))
}

// fail is the error of a result, which breaks the connection: some ranks may be in a call that
// others never join.
func (c *Collective) fail(what string, code C.int) error {
	switch {
	case code == 0:
		return nil
	case code < 0:
		c.broken = callError(what, C.CUresult(-code))
	default:
		c.broken = fmt.Errorf("%s: NCCL %s: %s (%d): open the collective again: %w", what, c.nccl,
			C.GoString(C.exo_nccl_error_name(c.nccl.lib, code)), int(code), device.ErrSticky)
	}
	if !errors.Is(c.broken, device.ErrSticky) {
		c.broken = fmt.Errorf("%w: %w", device.ErrSticky, c.broken)
	}
	c.abort()
	return c.broken
}

// abort ends the communicators with their work.
func (c *Collective) abort() {
	for rank := range c.ranks {
		if r := &c.ranks[rank]; r.comm != nil {
			C.exo_nccl_abort(c.nccl.lib, r.comm)
			r.comm = nil
		}
	}
}

// wait waits for a rank's stream, and checks the connection between polls: a rank that has lost its
// peers waits for ever.
func (c *Collective) wait(ctx context.Context, what string, s *stream) error {
	pause, start := spin, time.Now()
	for {
		r, err := s.pollOnce(what, pause, func(spin time.Duration) (C.CUresult, error) {
			return C.exo_wait(s.dev.raw, s.raw, C.int64_t(spin), C.int64_t(glance)), nil
		})
		if err != nil {
			return err
		}
		for rank := range c.ranks {
			if err := c.fail(what, C.exo_nccl_state(c.nccl.lib, c.ranks[rank].comm)); err != nil {
				return err
			}
		}
		if r == C.CUDA_SUCCESS {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := s.late(what, start); err != nil {
			return err
		}
		pause = 0
	}
}

// Close gives communicators and memory back. Work that the watchdog does not allow is aborted. A
// second call does nothing.
func (c *Collective) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	for _, d := range c.order {
		d.life.RLock()
		defer d.life.RUnlock()
	}
	for _, d := range c.gpus {
		d.forget(c)
	}
	return c.release(c.settle())
}

// settle waits for the work of the ranks, and reports whether it has ended.
func (c *Collective) settle() bool {
	if c.broken != nil {
		return false
	}
	for rank, d := range c.gpus {
		start := time.Now()
		for {
			r := C.exo_wait(c.ranks[rank].primary, c.ranks[rank].inner, C.int64_t(spin), C.int64_t(glance))
			if r == C.CUDA_SUCCESS {
				break
			}
			if r != C.CUDA_ERROR_NOT_READY || d.late("close a collective", start) != nil {
				return false
			}
		}
	}
	return true
}

// release frees everything; clean reports whether no work is in progress. The devices are held
// open, if they are open.
func (c *Collective) release(clean bool) error {
	var errs []error
	if clean {
		for rank := range c.ranks {
			r := &c.ranks[rank]
			if code := C.exo_nccl_destroy(c.nccl.lib, r.comm); code != 0 {
				errs = append(errs, fmt.Errorf("close a collective: NCCL %s: %s (%d): %w", c.nccl,
					C.GoString(C.exo_nccl_error_name(c.nccl.lib, code)), int(code), device.ErrSticky))
			}
			r.comm = nil
		}
	}
	c.abort()
	for rank, d := range c.gpus {
		if d.buried || d.broken.Load() != nil {
			c.ranks[rank].own = nil
		}
		r := C.exo_rank_close(&c.ranks[rank], C.int(d.index))
		if r != C.CUDA_SUCCESS && d.broken.Load() == nil { // what a broken GPU says of it is known
			errs = append(errs, callError(fmt.Sprintf("close rank %d of a collective on %s", rank, d.props.Name), r))
		}
	}
	return errors.Join(errs...)
}
