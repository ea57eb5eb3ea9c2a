package host

import (
	"bytes"
	"fmt"
	"sync"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

const (
	// align is the alignment of device memory: what cuMemAlloc promises, so that a kernel may rely
	// on it everywhere.
	align = 256
	// guard is the number of bytes on either side of a buffer that Close checks.
	guard     = 256
	guardByte = 0xD7
	// PoisonByte is what Options.Poison fills new memory with. As a number of a frame, a place or a
	// length it is far out of range.
	PoisonByte = 0xD5
)

// buffer is memory with guards around it. A kernel that writes outside its buffers damages a guard,
// which Close and Health report. Work that was queued before Close keeps the memory: it is only
// given back to the accounting, and the garbage collector frees it later.
type buffer struct {
	dev     *Device
	purpose string
	size    int64

	// mu is held for reading during an access, so that Close waits for it.
	mu    sync.RWMutex
	whole []byte // guard, memory, guard; nil once closed
	mem   []byte // the memory; its capacity ends where it ends
}

// guarded makes n bytes between two guards. mem is aligned to align and cannot grow into the guard.
// whole is kept to check the guards, and only mem is given out.
func guarded(n int64) (whole, mem []byte) {
	// The guards are multiples of align, so an aligned start aligns the memory between them.
	raw := make([]byte, n+2*guard+align)
	skip := (align - int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))%align)) % align
	whole = raw[skip : int64(skip)+n+2*guard]
	fill(whole[:guard], guardByte)
	fill(whole[guard+n:], guardByte)
	return whole, whole[guard : guard+n : guard+n]
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// Size returns the length in bytes, also after Close.
func (b *buffer) Size() int64 { return b.size }

// access calls fn with a range of the memory. Close waits for fn. op names the call in errors. A
// range outside the buffer, or a closed buffer, is an error, and fn is not called.
func (b *buffer) access(op string, off, n int64, fn func(mem []byte)) error {
	if err := device.CheckRange(op, off, n, b.size); err != nil {
		return err
	}
	if err := b.dev.health(op); err != nil {
		return err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.whole == nil {
		return fmt.Errorf("%s %d bytes at %d of a buffer for %s: %w", op, n, off, b.purpose, device.ErrClosed)
	}
	fn(b.mem[off : off+n])
	b.dev.traffic.Copied(op, n)
	return nil
}

// Write copies src into the buffer at once, without a stream. The caller orders it with queued
// work.
func (b *buffer) Write(off int64, src []byte) error {
	return b.access("write", off, int64(len(src)), func(mem []byte) { copy(mem, src) })
}

// Read copies from the buffer into dst at once, as Write does.
func (b *buffer) Read(off int64, dst []byte) error {
	return b.access("read", off, int64(len(dst)), func(mem []byte) { copy(dst, mem) })
}

// Fill sets a range to one byte at once, as Write does.
func (b *buffer) Fill(off, n int64, v byte) error {
	return b.access("fill", off, n, func(mem []byte) { fill(mem, v) })
}

// Close gives the memory back. It returns device.ErrSticky if a kernel wrote past the ends of the
// buffer. A second call does nothing.
func (b *buffer) Close() error {
	if whole := b.detach(); whole != nil {
		return b.free(whole)
	}
	return nil
}

// detach closes the handle and returns the memory with its guards, nil if the handle was closed
// before. Work in progress may still use the memory.
func (b *buffer) detach() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole := b.whole
	b.whole, b.mem = nil, nil
	if whole != nil {
		b.dev.mu.Lock()
		defer b.dev.mu.Unlock()
		delete(b.dev.buffers, b)
	}
	return whole
}

// free gives detached memory back to the accounting of the device and checks its guards.
func (b *buffer) free(whole []byte) error {
	b.dev.mu.Lock()
	b.dev.used -= b.size
	b.dev.mu.Unlock()
	device.MemoryEvent(b.dev.log, "free", b.dev.props.Name, b.purpose, b.size)
	if !intact(whole[:guard]) || !intact(whole[guard+b.size:]) {
		return fmt.Errorf("close a buffer of %d bytes for %s: bytes outside it were overwritten: %w", b.size, b.purpose,
			device.ErrSticky)
	}
	return nil
}

// guardPattern is the content of a guard.
var guardPattern = bytes.Repeat([]byte{guardByte}, guard)

// intact reports whether a guard has its original content.
func intact(g []byte) bool { return bytes.Equal(g, guardPattern) }
