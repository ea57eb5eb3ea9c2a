package device

import "fmt"

// Buffer is a run of device memory. Offsets and lengths are bytes; every access is checked against
// Size with overflow taken into account and fails with ErrInvalidArgument before it reaches the
// device. The creator of a Buffer closes it. A zero-length access is always allowed within 0..Size.
// Concurrent accesses to disjoint ranges are safe.
//
// The methods of a Buffer are not ordered with the work of any stream: Sync a stream before a
// method touches memory that its work reads or writes. Work that is queued later sees what Write,
// Fill and Copy have stored.
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
	// Close releases the memory, which no work in progress may use. A second call does nothing.
	Close() error
}

// HostBuffer is host memory that a device can address. Its creator closes it.
type HostBuffer interface {
	// Size is the length in bytes; it stays known after Close.
	Size() int64
	// Bytes is the memory, which starts at a multiple of 4096 bytes. It is valid until Close, which
	// returns it to the system: on a GPU, a later use of the slice ends the process. What streams
	// and kernels store in it is there once their stream is synced. After Close, Bytes returns nil.
	Bytes() []byte
	// Close releases the memory, which no work in progress may use. A second call does nothing.
	Close() error
}

// CheckCopy returns ErrInvalidArgument unless n bytes can be copied between ranges of two buffers.
// same reports whether the two are one buffer, whose ranges may not overlap: the device copies in
// no particular order.
func CheckCopy(what string, dstOff, dstSize, srcOff, srcSize, n int64, same bool) error {
	// The text is made only for an error: this runs for every page that moves.
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
