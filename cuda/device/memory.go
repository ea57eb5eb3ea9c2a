package device

import "fmt"

// Buffer is a run of device memory. Offsets and lengths are bytes; every access is checked against
// Size with overflow taken into account and fails with ErrInvalidArgument before it reaches the
// device. A Buffer belongs to its creator, who closes it; a zero-length access is always allowed
// within 0..Size. Concurrent accesses to disjoint ranges are safe.
//
// The methods of a Buffer are not ordered with the work of any stream: before one touches what a
// launch or a copy of a stream reads or writes, Sync that stream. What Write, Fill and Copy have
// stored before they return is seen by everything that is put into a stream later.
type Buffer interface {
	// Size is the length in bytes.
	Size() int64
	// Write copies src into the buffer at off and returns when src may be reused.
	Write(off int64, src []byte) error
	// Read copies from the buffer at off into dst and returns when dst is filled.
	Read(off int64, dst []byte) error
	// Copy copies n bytes of src from srcOff on into the buffer at off and returns when they are
	// there. src may belong to another device of the same kind; within one buffer the ranges may
	// not overlap.
	Copy(off int64, src Buffer, srcOff, n int64) error
	// Fill sets n bytes from off on to b.
	Fill(off, n int64, b byte) error
	// Close releases the memory, which no work under way may use. A second call does nothing.
	Close() error
}

// HostBuffer is host memory that a device can address. It belongs to its creator, who closes it.
type HostBuffer interface {
	// Size is the length in bytes; it stays known after Close.
	Size() int64
	// Bytes is the memory, which starts at a multiple of 4096 bytes. It is valid until Close, which
	// gives it back to the system: on a GPU, using the slice afterwards ends the process. What
	// streams and kernels store in it is there once their stream is synced. After Close, Bytes
	// returns nil.
	Bytes() []byte
	// Close releases the memory, which no work under way may use. A second call does nothing.
	Close() error
}

// CheckCopy returns ErrInvalidArgument unless n bytes can be copied between ranges of two buffers.
// same says that the two are one, where the ranges may not overlap: the device copies in no
// particular order.
func CheckCopy(what string, dstOff, dstSize, srcOff, srcSize, n int64, same bool) error {
	// The words are put together for an error only: this runs for every page that moves.
	if CheckRange(what, dstOff, n, dstSize) != nil {
		return CheckRange(what+": destination", dstOff, n, dstSize)
	}
	if CheckRange(what, srcOff, n, srcSize) != nil {
		return CheckRange(what+": source", srcOff, n, srcSize)
	}
	if same && n > 0 && dstOff < srcOff+n && srcOff < dstOff+n {
		return fmt.Errorf("%s: %d bytes at %d and at %d of one buffer overlap: %w", what, n, srcOff, dstOff,
			ErrInvalidArgument)
	}
	return nil
}
