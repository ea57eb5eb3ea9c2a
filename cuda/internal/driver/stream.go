//go:build cuda

package driver

/*
#cgo noescape exo_launch
#cgo nocallback exo_launch
#cgo nocallback exo_wait
#cgo noescape exo_await
#cgo nocallback exo_await
#include "supplement.h"
*/
import "C"

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

const (
	// spin is how long a wait polls without a pause: a launch of the hot path is over in less, and
	// a pause costs 70 us.
	spin = 200 * time.Microsecond
	// glance is how long a wait stays in C at a time, and so how late it may see that its context
	// is over.
	glance = 5 * time.Millisecond
	// maxIdleStreams is how many closed streams of a rank a device keeps for the next one, which else
	// takes a call of tens of microseconds.
	maxIdleStreams = 64
)

// rank is which of two streams goes first: blocks of launches that wait for a multiprocessor begin in
// the order of the ranks of their streams.
type rank int

const (
	ahead  rank = iota
	behind      // of background streams
)

// priority is the number of a rank for the driver, which brings a number that a GPU does not have
// within its range. 0 is the last and the default.
func (r rank) priority() int { return int(r) - 1 }

// stream is a CUDA stream that does not wait for the default stream.
type stream struct {
	dev  *Device
	rank rank

	mu        sync.Mutex // held during a call, so that Close waits for it
	raw       C.CUstream
	closed    atomic.Bool
	told      bool       // a call has returned the error that broke the device
	recording *recording // what a capture collects; nil outside it
	sides     sides
	work      block // the workspace of matrix products; empty before the first
}

// NewStream opens a stream, or takes one that was closed before.
func (d *Device) NewStream() (device.Stream, error) { return d.newStream(ahead) }

// NewBackgroundStream is NewStream with the lower priority of two.
func (d *Device) NewBackgroundStream() (device.Stream, error) { return d.newStream(behind) }

func (d *Device) newStream(of rank) (device.Stream, error) {
	if err := d.acquire("new stream"); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	s := &stream{dev: d, rank: of}
	d.mu.Lock()
	if idle := &d.idle[of]; len(*idle) > 0 {
		n := len(*idle)
		s.raw, *idle = (*idle)[n-1], (*idle)[:n-1]
		d.handles[s] = "stream"
		d.mu.Unlock()
		return s, nil
	}
	d.mu.Unlock()
	err := d.enter(func() error {
		made, err := cu.MakeStreamWithPriority(of.priority(), cu.NonBlocking)
		if err == nil {
			s.raw = C.CUstream(unsafe.Pointer(made.C()))
		}
		return err
	})
	if err := d.failCu(err, "cuStreamCreateWithPriority"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[s] = "stream"
	return s, nil
}

// begin holds the device and the stream for one call; end lets go of them.
func (s *stream) begin(op string) error {
	if err := s.dev.acquire(op); err != nil {
		s.told = true
		return err
	}
	if err := s.enter(op); err != nil {
		s.dev.life.RUnlock()
		return err
	}
	return nil
}

// enter is begin for a caller that holds the device already; s.mu.Unlock ends it.
func (s *stream) enter(op string) error {
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return fmt.Errorf("%s: stream: %w", op, device.ErrClosed)
	}
	return nil
}

func (s *stream) end() {
	s.mu.Unlock()
	s.dev.life.RUnlock()
}

// beginPlain is begin for what cannot stand in a capture.
func (s *stream) beginPlain(op string) error {
	if err := s.begin(op); err != nil {
		return err
	}
	if s.recording != nil {
		err := s.recording.note(fmt.Errorf("%s in a capture: %w", op, device.ErrInvalidArgument))
		s.end()
		return err
	}
	return nil
}

// do puts n bytes of work into the stream by fn, and nothing where n is 0.
func (s *stream) do(op string, n int64, fn func() C.CUresult) error {
	if err := s.dev.acquire(op); err != nil {
		s.told = true
		return err
	}
	defer s.dev.life.RUnlock()
	return s.doHeld(op, n, fn)
}

// doHeld is do for a caller that holds the device.
func (s *stream) doHeld(op string, n int64, fn func() C.CUresult) error {
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if n == 0 {
		return nil
	}
	if r := fn(); r != C.CUDA_SUCCESS {
		return s.tell(s.dev.fail(r, "%s of %d bytes", op, n))
	}
	s.dev.traffic.Copied(op, n)
	return nil
}

// Launch checks the call and puts it into the stream.
func (s *stream) Launch(k device.Kernel, g device.Geometry, args ...device.Arg) error {
	if err := s.launch(k, g, args); err != nil {
		return s.note(err)
	}
	s.dev.traffic.Launched()
	return nil
}

func (s *stream) launch(k device.Kernel, g device.Geometry, args []device.Arg) error {
	dk, ok := k.(*kernel)
	if !ok || dk == nil || dk.dev != s.dev {
		return fmt.Errorf("launch on %s: a kernel of another device: %w", s.dev.props.Name, device.ErrInvalidArgument)
	}
	if err := dk.check(g, args); err != nil {
		return err
	}
	var values [C.EXO_MAX_ARGS]C.uint64_t
	for i := range args {
		if args[i].Kind() != device.KindBuffer {
			values[i] = C.uint64_t(args[i].Bits())
			continue
		}
		off, _ := args[i].Span()
		var at C.CUdeviceptr
		var err error
		switch m := args[i].Memory().(type) {
		case device.Buffer:
			var b *buffer
			if b, err = deviceMemory(m, s.dev); err == nil {
				at = b.ptr
			}
		case device.HostBuffer:
			var b *hostBuffer
			if b, err = hostMemory(m); err == nil {
				at = b.mapped
			}
		default:
			err = fmt.Errorf("memory of an unknown kind: %w", device.ErrInvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("launch %s: argument %d (%s): %w", dk.name, i, dk.sig[i].Name, err)
		}
		values[i] = C.uint64_t(at) + C.uint64_t(off)
	}
	if err := s.begin("launch"); err != nil {
		return err
	}
	defer s.end()
	if s.recording != nil {
		s.recording.launch(args)
	}
	r := C.exo_launch(s.dev.raw, dk.fn, C.exo_shape{
		C.uint(g.Grid), C.uint(max(g.GridY, 1)), C.uint(max(g.GridZ, 1)),
		C.uint(g.Block), C.uint(max(g.BlockY, 1)), C.uint(max(g.BlockZ, 1)), C.uint(g.Shared),
	}, s.raw, &values[0],
		C.int(len(args)))
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return s.tell(s.dev.fail(r, "launch %s, %d blocks of %d threads, %d bytes of shared memory", dk.name, g.Grid,
		g.Block, g.Shared))
}

// tell remembers that the owner of the stream has seen an error.
func (s *stream) tell(err error) error {
	s.told = s.told || err != nil
	if s.recording != nil {
		return s.recording.note(err)
	}
	return err
}

// Sync waits for the work so far.
func (s *stream) Sync(ctx context.Context) error {
	return s.wait(ctx, "sync", func(spin time.Duration) (C.CUresult, error) {
		return C.exo_wait(s.dev.raw, s.raw, C.int64_t(spin), C.int64_t(glance)), nil
	})
}

// Await waits for a word that the work stores.
func (s *stream) Await(ctx context.Context, flag device.HostBuffer, off int64, want uint32) error {
	b, err := hostMemory(flag)
	if err != nil {
		return s.note(fmt.Errorf("await: %w", err))
	}
	if err := device.CheckWord("await", b, off); err != nil {
		return s.note(err)
	}
	return s.wait(ctx, "await", func(spin time.Duration) (C.CUresult, error) {
		var done C.int
		r := C.exo_await(s.dev.raw, s.raw, b.at(off), C.uint32_t(want), C.int64_t(spin), C.int64_t(glance), &done)
		if r == C.CUDA_SUCCESS && done != 0 {
			got := atomic.LoadUint32((*uint32)(unsafe.Add(b.host, off)))
			return r, fmt.Errorf("await: the work is done and the word at %d is %d, not %d: %w", off, got, want,
				device.ErrInvalidArgument)
		}
		return r, nil
	})
}

// wait polls, a glance at a time, until the result is not CUDA_ERROR_NOT_READY. Only the first one
// spins.
func (s *stream) wait(ctx context.Context, op string, poll func(spin time.Duration) (C.CUresult, error)) error {
	pause := spin
	var start time.Time // of the second glance: nearly all waits end in the first
	for {
		r, err := s.pollOnce(op, pause, poll)
		if err != nil || r == C.CUDA_SUCCESS {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s on %s: %w", op, s.dev.props.Name, err)
		}
		if start.IsZero() {
			start = time.Now()
		} else if err := s.late(op, start); err != nil {
			return err
		}
		pause = 0
	}
}

func (s *stream) pollOnce(op string, spin time.Duration, poll func(spin time.Duration) (C.CUresult, error)) (C.CUresult,
	error,
) {
	if err := s.beginPlain(op); err != nil {
		return 0, err
	}
	defer s.end()
	r, err := poll(spin)
	if r == C.CUDA_SUCCESS || r == C.CUDA_ERROR_NOT_READY {
		return r, err
	}
	return r, s.tell(s.dev.fail(r, "%s", op))
}

// Close waits for the work and gives the stream back. An error of that work which no earlier call
// has returned is returned here.
func (s *stream) Close() error {
	d := s.dev
	d.life.RLock()
	defer d.life.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording != nil {
		return s.recording.note(fmt.Errorf("close a stream in a capture: %w", device.ErrInvalidArgument))
	}
	if s.closed.Swap(true) {
		return nil
	}
	d.forget(s)
	if p := d.broken.Load(); p != nil { // the context takes its streams with it
		if s.told {
			return nil
		}
		return fmt.Errorf("close a stream on %s: %w", d.props.Name, *p)
	}
	r, start := C.CUresult(C.CUDA_ERROR_NOT_READY), time.Now()
	for r == C.CUDA_ERROR_NOT_READY {
		r = C.exo_wait(d.raw, s.raw, C.int64_t(spin), C.int64_t(glance))
		if r == C.CUDA_ERROR_NOT_READY {
			if err := s.late("close a stream", start); err != nil {
				return err // the stream stays with the context
			}
		}
	}
	if err := d.fail(r, "close a stream: wait for its work"); err != nil {
		return err
	}
	if err := s.closeSides(); err != nil {
		return err
	}
	if s.work.size > 0 {
		d.pool.give(s.work)
		s.work = block{}
	}
	d.mu.Lock()
	idle := &d.idle[s.rank]
	keep := len(*idle) < maxIdleStreams
	if keep {
		*idle = append(*idle, s.raw)
	}
	d.mu.Unlock()
	if keep {
		return nil
	}
	return d.fail(C.exo_stream_destroy(d.raw, s.raw), "cuStreamDestroy")
}
