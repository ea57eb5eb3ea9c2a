//go:build cuda

package driver

/*
#cgo noescape exo_write
#cgo nocallback exo_write
#cgo noescape exo_read
#cgo nocallback exo_read
#cgo nocallback exo_fill
#include "supplement.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

type buffer struct {
	dev     *Device
	purpose string
	size    int64
	ptr     C.CUdeviceptr // 0 for a buffer of no bytes; constant
	block   block         // what it stands in; constant

	mu     sync.RWMutex // held for reading during a copy, so that Close waits for it
	closed atomic.Bool
}

// Alloc takes a block of memory.
func (d *Device) Alloc(n int64, purpose string) (device.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("alloc %d bytes for %s: %w", n, purpose, device.ErrInvalidArgument)
	}
	if err := d.acquire("alloc"); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	b, err := d.alloc(n, purpose, nil)
	if err != nil {
		return nil, err // not b: an interface that holds a nil pointer is not nil
	}
	return b, nil
}

// alloc makes a buffer; s may be the stream that uses it first. d.life is held.
func (d *Device) alloc(n int64, purpose string, s *stream) (*buffer, error) {
	b := &buffer{dev: d, purpose: purpose, size: n}
	if n > 0 {
		var err error
		if b.block, err = d.pool.take(n, s); err != nil {
			return nil, fmt.Errorf("alloc %d bytes for %s: %w", n, purpose, err)
		}
		b.ptr = b.block.ptr
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[b] = struct{}{}
	device.MemoryEvent(d.log, "alloc", d.props.Name, purpose, n)
	return b, nil
}

// Size is the length in bytes; it stays known after Close.
func (b *buffer) Size() int64 { return b.size }

// transfer runs one copy of n bytes at off on a lane of the device.
func (b *buffer) transfer(op string, off, n int64, fn func(at C.CUdeviceptr, l lane) C.CUresult) error {
	if err := device.CheckRange(op, off, n, b.size); err != nil {
		return err
	}
	if err := b.dev.acquire(op); err != nil {
		return err
	}
	defer b.dev.life.RUnlock()
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed.Load() {
		return fmt.Errorf("%s %d bytes at %d of a buffer for %s: %w", op, n, off, b.purpose, device.ErrClosed)
	}
	if n == 0 {
		return nil
	}
	l := <-b.dev.lanes
	r := fn(b.ptr+C.CUdeviceptr(off), l)
	b.dev.lanes <- l
	if r == C.CUDA_SUCCESS {
		b.dev.traffic.Copied(op, n)
	}
	return b.dev.fail(r, "%s %d bytes at %d of %d of a buffer for %s", op, n, off, b.size, b.purpose)
}

// Write copies src into the buffer.
func (b *buffer) Write(off int64, src []byte) error {
	return b.transfer("write", off, int64(len(src)), func(at C.CUdeviceptr, l lane) C.CUresult {
		return C.exo_write(b.dev.raw, l.stream, at, unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)),
			l.staging.host)
	})
}

// Read copies from the buffer into dst.
func (b *buffer) Read(off int64, dst []byte) error {
	return b.transfer("read", off, int64(len(dst)), func(at C.CUdeviceptr, l lane) C.CUresult {
		return C.exo_read(b.dev.raw, l.stream, unsafe.Pointer(unsafe.SliceData(dst)), at, C.size_t(len(dst)),
			l.staging.host)
	})
}

// Fill sets a range to one byte.
func (b *buffer) Fill(off, n int64, v byte) error {
	return b.transfer("fill", off, n, func(at C.CUdeviceptr, l lane) C.CUresult {
		return C.exo_fill(b.dev.raw, l.stream, at, C.uchar(v), C.size_t(n))
	})
}

// Close gives the block back to the pool.
func (b *buffer) Close() error {
	d := b.dev
	d.life.RLock()
	defer d.life.RUnlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Swap(true) {
		return nil
	}
	d.mu.Lock()
	delete(d.buffers, b)
	d.mu.Unlock()
	if b.ptr != 0 {
		d.pool.give(b.block)
	}
	device.MemoryEvent(d.log, "free", d.props.Name, b.purpose, b.size)
	return nil
}
