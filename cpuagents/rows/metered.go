package rows

import (
	arrowmem "github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
)

// metered is an allocator of the Arrow library that takes what it allocates from a hold. If the
// memory is too small it panics with the error of the hold, which damaged returns to the caller of
// the library.
type metered struct {
	arrowmem.Allocator
	hold *inputmem.Hold
}

// newMetered returns the allocator of a source.
func newMetered(h *inputmem.Hold) metered { return metered{arrowmem.NewGoAllocator(), h} }

// Allocate implements memory.Allocator.
func (m metered) Allocate(n int) []byte {
	if err := m.hold.Grow(int64(n)); err != nil {
		panic(err)
	}
	return m.Allocator.Allocate(n)
}

// Reallocate implements memory.Allocator. It may copy, so both buffers are counted until the copy
// is done.
func (m metered) Reallocate(n int, b []byte) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	if err := m.hold.Grow(int64(n)); err != nil {
		panic(err)
	}
	grown := m.Allocator.Reallocate(n, b)
	m.hold.Shrink(int64(cap(b)))
	return grown
}

// Free implements memory.Allocator. The capacity counts: the library may pass a shortened slice.
func (m metered) Free(b []byte) {
	m.hold.Shrink(int64(cap(b)))
	m.Allocator.Free(b)
}
