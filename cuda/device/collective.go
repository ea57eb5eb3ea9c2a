package device

import (
	"context"
	"fmt"
	"math"
)

// Collective is an operation over the memories of several devices of one process. The rank of a
// device is its index in Devices. A call is made once for all ranks, with a Place for each rank.
// Its work is queued on the streams of the places: it starts after earlier work of the streams and
// before later work. It returns when all of it is done, or with an error, and the bytes of every
// rank that the call may write are then undefined. Cancelling ctx ends the wait, not the work.
// After any error work may be in progress: sync the streams before the memory is used, before the
// next call and before Close. An error of a device belongs to this device. A failed connection
// between devices is ErrSticky: every further call returns it, and the Collective must be closed
// and opened again. A Collective is used by one goroutine at a time. Its owner closes it before the
// devices.
type Collective interface {
	// Devices are the ranks. The slice is not changed.
	Devices() []Device
	// Route describes the path of the bytes.
	Route() Route
	// Sum adds n elements of each rank up, in place: element i of every rank becomes the sum of the
	// elements i of all. Sums wrap around at the size of an element, so the bits depend neither on
	// the order of the ranks nor on the way. The element is KindUint32, or KindUint64; signed
	// integers in two's complement are the same. A place has n elements from its offset on.
	Sum(ctx context.Context, element Kind, n int64, places []Place) error
	// Gather gives every rank the bytes of all, in the order of ranks and unchanged: a place has
	// len(places)*n bytes from its offset on. The n bytes at rank*n are the input of the rank and
	// stay; the rest is written.
	Gather(ctx context.Context, n int64, places []Place) error
	// Close waits for nothing that does not end, and releases what is held on the devices. A second
	// call does nothing.
	Close() error
}

// Place is a rank's part of a collective call: memory of its device from the byte at Off on, a
// multiple of RangeAlign, and the stream of its device in whose order the work stands. No two
// places share bytes.
type Place struct {
	Stream Stream
	Buffer Buffer
	Off    int64
}

// Route is how the bytes of a Collective go from device to device.
type Route struct {
	// Name is "nccl" or "host".
	Name string
	// Reason says why, in words for logs: the library and its version, or why it is not used.
	Reason string
}

// ElementBytes is the size of an element that a Collective sums, 0 for any other kind.
func ElementBytes(k Kind) int64 {
	switch k {
	case KindUint32:
		return 4
	case KindUint64:
		return 8
	}
	return 0
}

// CheckCollective returns ErrInvalidArgument unless there is a place for each of the ranks, with
// memory for copies times n bytes.
func CheckCollective(op string, ranks int, n, copies int64, places []Place) error {
	if len(places) != ranks {
		return fmt.Errorf("%s: %d places for %d devices: %w", op, len(places), ranks, ErrInvalidArgument)
	}
	if n < 0 || n > math.MaxInt64/copies {
		return fmt.Errorf("%s of %d bytes a device: %w", op, n, ErrInvalidArgument)
	}
	for rank, p := range places {
		if p.Stream == nil || p.Buffer == nil {
			return fmt.Errorf("%s: rank %d has no stream or no memory: %w", op, rank, ErrInvalidArgument)
		}
		if p.Off%RangeAlign != 0 {
			return fmt.Errorf("%s: rank %d starts at %d, not a multiple of %d: %w", op, rank, p.Off, RangeAlign,
				ErrInvalidArgument)
		}
		if err := CheckRange(fmt.Sprintf("%s: rank %d", op, rank), p.Off, n*copies, p.Buffer.Size()); err != nil {
			return err
		}
		for other := range rank {
			if q := places[other]; q.Buffer == p.Buffer && p.Off < q.Off+n*copies && q.Off < p.Off+n*copies {
				return fmt.Errorf("%s: ranks %d and %d have the same memory: %w", op, other, rank, ErrInvalidArgument)
			}
		}
	}
	return nil
}

// CheckSum is CheckCollective for a Sum; bytes is what a rank has of it.
func CheckSum(ranks int, element Kind, n int64, places []Place) (bytes int64, err error) {
	size := ElementBytes(element)
	if size == 0 || n < 0 || n > math.MaxInt64/size {
		return 0, fmt.Errorf("sum of %d elements of %v: want uint32 or uint64: %w", n, element, ErrInvalidArgument)
	}
	return n * size, CheckCollective("sum", ranks, n*size, 1, places)
}

// CheckRanks returns ErrInvalidArgument unless these devices can be the ranks of a Collective: one
// or more, no one twice.
func CheckRanks(devices []Device) error {
	if len(devices) == 0 {
		return fmt.Errorf("collective of no devices: %w", ErrInvalidArgument)
	}
	for rank, d := range devices {
		if d == nil {
			return fmt.Errorf("collective: rank %d is no device: %w", rank, ErrInvalidArgument)
		}
		for other := range rank {
			if devices[other] == d {
				return fmt.Errorf("collective: %s is rank %d and %d: %w", d.Properties().Name, other, rank,
					ErrInvalidArgument)
			}
		}
	}
	return nil
}
