//go:build cuda

package driver

/*
#cgo nocallback exo_upload
#cgo nocallback exo_download
#cgo nocallback exo_copy
#cgo nocallback exo_memset
#include "supplement.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// deviceMemory is the buffer behind the contract's type, of device d, or of any GPU where d is nil.
func deviceMemory(m device.Buffer, d *Device) (*buffer, error) {
	b, ok := m.(*buffer)
	if !ok || b == nil || d != nil && b.dev != d {
		return nil, fmt.Errorf("a buffer of another device: %w", device.ErrInvalidArgument)
	}
	if b.closed.Load() {
		return nil, fmt.Errorf("buffer for %s: %w", b.purpose, device.ErrClosed)
	}
	return b, nil
}

// hostMemory is the host buffer behind the contract's type; every GPU of the process can use it.
func hostMemory(m device.HostBuffer) (*hostBuffer, error) {
	b, ok := m.(*hostBuffer)
	if !ok || b == nil {
		return nil, fmt.Errorf("host memory of another kind of device: %w", device.ErrInvalidArgument)
	}
	if b.closed.Load() {
		return nil, fmt.Errorf("host buffer for %s: %w", b.purpose, device.ErrClosed)
	}
	return b, nil
}

// Upload puts a copy from pinned memory into the stream.
func (s *stream) Upload(dst device.Buffer, dstOff int64, src device.HostBuffer, srcOff, n int64) error {
	to, err := deviceMemory(dst, s.dev)
	if err != nil {
		return s.note(fmt.Errorf("upload: %w", err))
	}
	from, err := hostMemory(src)
	if err != nil {
		return s.note(fmt.Errorf("upload: %w", err))
	}
	if err := device.CheckCopy("upload", dstOff, to.size, srcOff, from.size, n, false); err != nil {
		return s.note(err)
	}
	return s.do("upload", n, func() C.CUresult {
		s.use(&to.closed, &from.closed)
		return C.exo_upload(s.dev.raw, s.raw, to.ptr+C.CUdeviceptr(dstOff), from.at(srcOff), C.size_t(n))
	})
}

// Download puts a copy to pinned memory into the stream.
func (s *stream) Download(dst device.HostBuffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	to, err := hostMemory(dst)
	if err != nil {
		return s.note(fmt.Errorf("download: %w", err))
	}
	from, err := deviceMemory(src, s.dev)
	if err != nil {
		return s.note(fmt.Errorf("download: %w", err))
	}
	if err := device.CheckCopy("download", dstOff, to.size, srcOff, from.size, n, false); err != nil {
		return s.note(err)
	}
	return s.do("download", n, func() C.CUresult {
		s.use(&to.closed, &from.closed)
		return C.exo_download(s.dev.raw, s.raw, to.at(dstOff), from.ptr+C.CUdeviceptr(srcOff), C.size_t(n))
	})
}

// Copy puts a copy on one device, or between two, into the stream.
func (s *stream) Copy(dst device.Buffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	to, err := deviceMemory(dst, nil)
	if err != nil {
		return s.note(fmt.Errorf("copy: %w", err))
	}
	from, err := deviceMemory(src, nil)
	if err != nil {
		return s.note(fmt.Errorf("copy: %w", err))
	}
	if to.dev != s.dev && from.dev != s.dev {
		return s.note(fmt.Errorf("copy: neither buffer is of the stream's device: %w", device.ErrInvalidArgument))
	}
	if err := device.CheckCopy("copy", dstOff, to.size, srcOff, from.size, n, to == from); err != nil {
		return s.note(err)
	}
	peer := to.dev
	if peer == s.dev {
		peer = from.dev
	}
	unlock, err := pair("copy", s.dev, peer)
	if err != nil {
		return s.note(err)
	}
	defer unlock()
	s.dev.befriend(peer)
	return s.doHeld("copy", n, func() C.CUresult {
		s.use(&to.closed, &from.closed)
		return C.exo_copy(s.dev.raw, s.raw, to.ptr+C.CUdeviceptr(dstOff), to.dev.raw, from.ptr+C.CUdeviceptr(srcOff),
			from.dev.raw, C.size_t(n))
	})
}

// befriend opens the direct way between the memories of two GPUs, once for two openings. Both are
// held open.
func (d *Device) befriend(other *Device) {
	if d.index == other.index {
		return
	}
	d.mu.Lock()
	known := d.friends[other.props.Generation]
	if !known {
		if d.friends == nil {
			d.friends = map[uint64]bool{}
		}
		d.friends[other.props.Generation] = true
	}
	d.mu.Unlock()
	if !known {
		C.exo_befriend(d.raw, other.raw)
		C.exo_befriend(other.raw, d.raw)
	}
}

// pair holds two devices open, which may be one. They are taken in the order of their generations,
// so that two goroutines and two Closes cannot wait for each other in a circle.
func pair(op string, a, b *Device) (unlock func(), err error) {
	if a == b {
		return a.life.RUnlock, a.acquire(op)
	}
	if a.props.Generation > b.props.Generation {
		a, b = b, a
	}
	if err := a.acquire(op); err != nil {
		return nil, err
	}
	if err := b.acquire(op); err != nil {
		a.life.RUnlock()
		return nil, err
	}
	return func() { b.life.RUnlock(); a.life.RUnlock() }, nil
}

// Fill puts a fill into the stream.
func (s *stream) Fill(m device.Buffer, off, n int64, v byte) error {
	b, err := deviceMemory(m, s.dev)
	if err != nil {
		return s.note(fmt.Errorf("fill: %w", err))
	}
	if err := device.CheckRange("fill", off, n, b.size); err != nil {
		return s.note(err)
	}
	return s.do("fill", n, func() C.CUresult {
		s.use(&b.closed)
		return C.exo_memset(s.dev.raw, s.raw, b.ptr+C.CUdeviceptr(off), C.uchar(v), C.size_t(n))
	})
}

// Copy copies from another buffer, which may be of another GPU, and waits.
func (b *buffer) Copy(off int64, src device.Buffer, srcOff, n int64) error {
	from, ok := src.(*buffer)
	if !ok || from == nil {
		return fmt.Errorf("copy: a buffer of another kind of device: %w", device.ErrInvalidArgument)
	}
	if err := device.CheckCopy("copy", off, b.size, srcOff, from.size, n, b == from); err != nil {
		return err
	}
	unlock, err := pair("copy", b.dev, from.dev)
	if err != nil {
		return err
	}
	defer unlock()
	b.dev.befriend(from.dev)
	// Two goroutines that copy crosswise lock in the same order.
	first, second := b, from
	if uintptr(unsafe.Pointer(first)) > uintptr(unsafe.Pointer(second)) {
		first, second = second, first
	}
	first.mu.RLock()
	defer first.mu.RUnlock()
	if first != second {
		second.mu.RLock()
		defer second.mu.RUnlock()
	}
	for _, m := range []*buffer{b, from} {
		if m.closed.Load() {
			return fmt.Errorf("copy %d bytes: a buffer for %s: %w", n, m.purpose, device.ErrClosed)
		}
	}
	if n == 0 {
		return nil
	}
	l := <-b.dev.lanes
	defer func() { b.dev.lanes <- l }()
	r := C.exo_copy(b.dev.raw, l.stream, b.ptr+C.CUdeviceptr(off), b.dev.raw, from.ptr+C.CUdeviceptr(srcOff),
		from.dev.raw, C.size_t(n))
	if r == C.CUDA_SUCCESS {
		r = C.exo_stream_sync(b.dev.raw, l.stream)
	}
	return b.dev.fail(r, "copy %d bytes from %d of %d to %d of %d", n, srcOff, from.size, off, b.size)
}
