package host

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// pageSize is the alignment of host buffers: what pinned memory has on a GPU.
const pageSize = 4096

// hostBuffer is memory of the process. The host device works in the process, so that is its pinned
// memory. It counts against the memory limit of the device.
type hostBuffer struct {
	dev     *Device
	purpose string
	size    int64
	mem     atomic.Pointer[[]byte] // nil once closed
}

// AllocHost returns host memory of n bytes, zeros at first, which starts at a multiple of 4096
// bytes. It fails with device.ErrOutOfMemory if the limit or the free memory of the machine is
// less.
func (d *Device) AllocHost(n int64, purpose string) (device.HostBuffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("alloc %d bytes of host memory for %s: %w", n, purpose, device.ErrInvalidArgument)
	}
	if err := d.health("alloc host memory"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("alloc %d bytes of host memory for %s on host: %w", n, purpose, device.ErrClosed)
	}
	// The limit and the machine both bound it: memory of the host is memory of the device.
	available, _ := systemMemory()
	if available = min(available, d.limit-d.used); n > available {
		return nil, fmt.Errorf("alloc %d bytes of host memory for %s on host: %d are available: %w", n, purpose,
			available, device.ErrOutOfMemory)
	}
	d.used += n
	raw := make([]byte, n+pageSize)
	skip := (pageSize - int64(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))%pageSize)) % pageSize
	mem := raw[skip : skip+n : skip+n]
	b := &hostBuffer{dev: d, purpose: purpose, size: n}
	b.mem.Store(&mem)
	d.pinned[b] = struct{}{}
	return b, nil
}

// Size returns the length in bytes, also after Close.
func (b *hostBuffer) Size() int64 { return b.size }

// Bytes returns the memory, nil after Close.
func (b *hostBuffer) Bytes() []byte {
	if mem := b.mem.Load(); mem != nil {
		return *mem
	}
	return nil
}

// Close gives the memory back to the accounting. Work that is queued may still use it.
func (b *hostBuffer) Close() error {
	if b.mem.Swap(nil) == nil {
		return nil
	}
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	delete(b.dev.pinned, b)
	b.dev.used -= b.size
	return nil
}
