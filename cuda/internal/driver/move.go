//go:build cuda

package driver

/*
#cgo noescape exo_batch
#cgo nocallback exo_batch
#cgo noescape exo_move
#cgo nocallback exo_move
#include "supplement.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// moveLanes is the number of concurrent copies of one UploadAll or DownloadAll where the driver has
// no batches. Between two copies of 2 MiB in one stream the bus idles for about 2 us of 40, which a
// second stream does not fill on every driver: see BenchmarkPage in docs/performance.md.
var moveLanes = 2

// batches reports whether the driver's call for many copies is used where it exists; a benchmark
// compares.
var batches = true

// sides are further streams for the pieces of a stream's copies, and the events that keep them in
// its order.
type sides struct {
	streams [C.EXO_MAX_LANES]C.CUstream // streams[0] is the stream itself
	events  [C.EXO_MAX_LANES]C.CUevent
	n       int
}

// openSides makes the side streams on their first use. s.mu is held.
func (s *stream) openSides() error {
	if s.sides.n == 0 {
		s.sides.streams[0] = s.raw
		if r := C.exo_event_create_plain(s.dev.raw, &s.sides.events[0]); r != C.CUDA_SUCCESS {
			return s.dev.fail(r, "cuEventCreate")
		}
		s.sides.n = 1
	}
	for s.sides.n < moveLanes {
		var raw C.CUstream
		err := s.dev.enter(func() error {
			made, err := cu.MakeStream(cu.NonBlocking)
			if err == nil {
				raw = C.CUstream(unsafe.Pointer(made.C()))
			}
			return err
		})
		if err := s.dev.failCu(err, "cuStreamCreate"); err != nil {
			return err
		}
		if r := C.exo_event_create_plain(s.dev.raw, &s.sides.events[s.sides.n]); r != C.CUDA_SUCCESS {
			_ = C.exo_stream_destroy(s.dev.raw, raw) // the first error is the one to tell
			return s.dev.fail(r, "cuEventCreate")
		}
		s.sides.streams[s.sides.n] = raw
		s.sides.n++
	}
	return nil
}

// closeSides gives the side streams up, whose work is done with the stream's. s.mu is held.
func (s *stream) closeSides() error {
	d := s.dev
	var first error
	for i := range s.sides.n {
		err := d.fail(C.exo_event_destroy(d.raw, s.sides.events[i]), "cuEventDestroy")
		if i > 0 && err == nil {
			err = d.fail(C.exo_stream_destroy(d.raw, s.sides.streams[i]), "cuStreamDestroy")
		}
		if first == nil {
			first = err
		}
	}
	s.sides = sides{}
	return first
}

// UploadAll puts many copies from pinned memory into the stream.
func (s *stream) UploadAll(pieces []device.Piece) error {
	return s.note(s.move("upload", true, pieces))
}

// DownloadAll puts many copies to pinned memory into the stream.
func (s *stream) DownloadAll(pieces []device.Piece) error {
	return s.note(s.move("download", false, pieces))
}

// list is what one call hands to the driver: addresses on the device and on the host, and bytes.
// The driver has read it when the call returns.
type list struct{ on, off, size []C.uint64_t }

var lists = sync.Pool{New: func() any { return new(list) }}

func (s *stream) move(op string, up bool, pieces []device.Piece) error {
	var total int64
	l := lists.Get().(*list)
	defer lists.Put(l)
	on, off, size := l.on[:0], l.off[:0], l.size[:0]
	for i := range pieces {
		p := &pieces[i]
		b, err := deviceMemory(p.Buffer, s.dev)
		if err != nil {
			return fmt.Errorf("%s: piece %d: %w", op, i, err)
		}
		h, err := hostMemory(p.Host)
		if err != nil {
			return fmt.Errorf("%s: piece %d: %w", op, i, err)
		}
		if err := device.CheckCopy(op, p.Off, b.size, p.HostOff, h.size, p.Bytes, false); err != nil {
			return fmt.Errorf("piece %d: %w", i, err)
		}
		if p.Bytes == 0 {
			continue
		}
		total += p.Bytes
		to, from, n := C.uint64_t(b.ptr)+C.uint64_t(p.Off), h.at(p.HostOff), C.uint64_t(p.Bytes)
		if k := len(on) - 1; k >= 0 && on[k]+size[k] == to && off[k]+size[k] == from && sameMemory(&pieces[i-1], p) {
			size[k] += n // what stands one behind the other on both sides is one copy
			continue
		}
		on, off, size = append(on, to), append(off, from), append(size, n)
	}
	l.on, l.off, l.size = on, off, size
	direction := C.int(0)
	if up {
		direction = 1
	}
	return s.do(op, total, func() C.CUresult {
		if batches && len(on) > 1 && s.recording == nil && !s.dev.noBatch.Load() {
			r := C.exo_batch(s.dev.raw, s.raw, direction, &on[0], &off[0], &size[0], C.int(len(on)))
			if r != C.CUDA_ERROR_NOT_SUPPORTED {
				return r
			}
			s.dev.noBatch.Store(true)
		}
		lanes := min(moveLanes, len(on))
		if s.recording != nil {
			lanes = 1 // a graph keeps to the stream's order
			for i := range pieces {
				s.use(&pieces[i].Buffer.(*buffer).closed, &pieces[i].Host.(*hostBuffer).closed)
			}
		} else if err := s.openSides(); err != nil {
			lanes = 1 // slower, and right
		}
		s.sides.streams[0] = s.raw
		return C.exo_move(s.dev.raw, &s.sides.streams[0], &s.sides.events[0], C.int(lanes), direction, &on[0], &off[0],
			&size[0], C.int(len(on)))
	})
}

func sameMemory(a, b *device.Piece) bool { return a.Buffer == b.Buffer && a.Host == b.Host }
