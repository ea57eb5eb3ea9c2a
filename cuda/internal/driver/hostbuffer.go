//go:build cuda

package driver

// #include "supplement.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// hostBuffer is pinned host memory that the contexts of the process see too.
type hostBuffer struct {
	dev     *Device
	purpose string
	size    int64
	host    unsafe.Pointer // nil for a buffer of no bytes; constant
	whole   C.size_t       // bytes that are mapped
	mapped  C.CUdeviceptr  // its address for kernels

	closed atomic.Bool
}

// AllocHost pins memory.
func (d *Device) AllocHost(n int64, purpose string) (device.HostBuffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("alloc %d bytes of host memory for %s: %w", n, purpose, device.ErrInvalidArgument)
	}
	if err := d.acquire("alloc host memory"); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	b := &hostBuffer{dev: d, purpose: purpose, size: n}
	if n > 0 {
		b.whole = C.size_t(n)
		r := C.exo_pin(d.raw, &b.whole, &b.host, &b.mapped)
		if err := d.fail(r, "cuMemHostRegister of %d bytes for %s", n, purpose); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned[b] = struct{}{}
	return b, nil
}

// Size is the length in bytes.
func (b *hostBuffer) Size() int64 { return b.size }

// Bytes is the memory, nil once closed.
func (b *hostBuffer) Bytes() []byte {
	if b.closed.Load() {
		return nil
	}
	return unsafe.Slice((*byte)(b.host), b.size)
}

func (b *hostBuffer) at(off int64) C.uint64_t {
	return C.uint64_t(uintptr(b.host)) + C.uint64_t(off)
}

// Close gives the memory back to the system.
func (b *hostBuffer) Close() error {
	d := b.dev
	d.life.RLock()
	defer d.life.RUnlock()
	if b.closed.Swap(true) {
		return nil
	}
	d.mu.Lock()
	delete(d.pinned, b)
	d.mu.Unlock()
	return b.unpin()
}

// unpin gives the memory back to the system. A broken context is not asked: it lets go of the
// memory when it is destroyed. d.life is held.
func (b *hostBuffer) unpin() error {
	if b.host == nil {
		return nil
	}
	ctx := b.dev.raw
	if b.dev.buried || b.dev.broken.Load() != nil {
		ctx = nil
	}
	return b.dev.fail(C.exo_unpin(ctx, b.host, b.whole), "cuMemHostUnregister of %d bytes for %s", b.size, b.purpose)
}
