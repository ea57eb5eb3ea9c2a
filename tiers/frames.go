package tiers

import (
	"context"
	"fmt"
)

// Frames is a medium of equal frames, each as long as a page: device memory, pinned host memory,
// plain memory. Accesses to different frames may run at once; the page manager and the holder of
// its pin order accesses to one frame. Package tierstest tests every implementation.
type Frames interface {
	// Count is the number of frames; only Resize changes it.
	Count() int
	// Read copies from a frame at off into dst and returns when dst is filled.
	Read(frame int, off int64, dst []byte) error
	// Write copies src into a frame at off and returns when src may be reused.
	Write(frame int, off int64, src []byte) error
}

// Mapped are Frames whose memory the processor addresses: a page is read from a disk straight into
// it.
type Mapped interface {
	Frames
	// Frame is a frame's memory, one page long. Whoever pins the page in it may use it until the
	// unpin.
	Frame(frame int) []byte
}

// Move is one page of a Copier's work: the numbers of a frame of each medium.
type Move struct{ From, To int }

// Urgency says what a copy is for.
type Urgency uint8

// The urgencies. A Demand does not wait for what Background copies have not started yet.
const (
	Background Urgency = iota
	Demand
)

// Copier are Frames that copy whole pages from and to frames of certain other media by themselves,
// many of them under way at once. Copies between media that no Copier reaches go page by page
// through the processor.
//
// CopyIn fills own frames To from frames From of another medium, CopyOut the frames To of another
// one from own frames From; both return when all of them are done. After an error each destination
// may hold anything, every source is as it was, and nothing is under way any more: the end of ctx
// keeps copies from starting, it does not leave any behind. The moves are the caller's again after
// the return.
type Copier interface {
	Frames
	// Reaches reports whether it copies from and to another medium.
	Reaches(other Frames) bool
	CopyIn(ctx context.Context, from Frames, moves []Move, u Urgency) error
	CopyOut(ctx context.Context, to Frames, moves []Move, u Urgency) error
}

// Stager are Frames that Read and Write faster with memory that they have made themselves: pinned
// memory, for a device.
type Stager interface {
	Frames
	// Stage makes a buffer of one page, good until the medium is closed.
	Stage() ([]byte, error)
}

// Zeroer are Frames that clear a frame faster than a Write of zeros does.
type Zeroer interface {
	Frames
	// Zero makes a frame zeros and returns when it is.
	Zero(frame int) error
}

// Resizer are Frames whose number changes.
type Resizer interface {
	Frames
	// Resize makes the frames count, and copies each frame From of the old ones to frame To of the
	// new ones; the others hold anything. Both have memory for a moment. Nothing else uses the
	// frames meanwhile. After an error they are as they were.
	Resize(count int, moves []Move) error
}

// CheckFrame returns ErrInvalid unless n bytes at off lie in one of count frames of pageSize bytes,
// for implementations of Frames.
func CheckFrame(frame int, off int64, n, count int, pageSize int64) error {
	if frame < 0 || frame >= count || off < 0 || off > pageSize || int64(n) > pageSize-off {
		return fmt.Errorf("range [%d, %d+%d) of frame %d of %d: %w", off, off, n, frame, count, ErrInvalid)
	}
	return nil
}
