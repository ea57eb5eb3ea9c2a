package field

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// Begin prepares n ticks: it checks n and most, makes all pages with ready, and marks them as
// changed.
func (f *Field) Begin(ctx context.Context, n, most int, ready func(ctx context.Context) error) error {
	if n < 1 || most < 1 {
		return fmt.Errorf("%w: %d ticks, %d at a time: use 1 or more", f.o.Invalid, n, most)
	}
	if err := ready(ctx); err != nil {
		return err
	}
	for page := range f.memory.Count() {
		f.memory.MarkDirty([]uint64{uint64(page)})
	}
	return nil
}

// Steps puts n ticks into the stream, and does not wait for the last ones. step launches tick
// number i. After each most ticks, Steps waits for them with the context wait, and checks ctx.
func (f *Field) Steps(ctx, wait context.Context, n, most int, step func(i int) error) error {
	for i := range n {
		if i%most == 0 {
			if err := f.Sync(wait); err != nil {
				return err
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		if err := step(i); err != nil {
			return f.Drain(wait, err)
		}
	}
	return nil
}

// Tally waits for the stream, and reads the number of agents in each of n states.
func (f *Field) Tally(ctx context.Context, from device.Buffer, n int) ([]uint64, error) {
	if err := f.Sync(ctx); err != nil {
		return nil, err
	}
	tally := make([]uint64, n)
	if err := from.Read(0, device.Bytes(tally)); err != nil {
		return nil, gpubatch.Mark(err)
	}
	return tally, nil
}

// ReadFirst reads a variable of the first group, at an offset of the first page. A page that does
// not exist has zeros. The stream is done.
func ReadFirst[T uint32 | uint64](f *Field, offset uint32) (T, error) {
	if !f.memory.Made()[0] {
		return 0, nil
	}
	var v [1]T
	at := int64(f.memory.Frame(0))*int64(f.o.Layout.PageBytes) + int64(offset)
	err := f.memory.Arena().Read(at, device.Bytes(v[:]))
	return v[0], gpubatch.Mark(err)
}

// SetTicks puts into the stream what writes the number of ticks of all groups, at an offset of each
// page. rounds is the kernel graphset.Rounds.
func (f *Field) SetTicks(rounds device.Kernel, offset, ticks uint32) error {
	return f.Stream.Launch(rounds, f.Columns.Shape(int64(f.Groups())), graphset.RoundsArgs{
		Pages: device.Ptr(f.memory.Arena()), Frames: device.Ptr(f.Frames), PageBytes: uint64(f.o.Layout.PageBytes),
		Slots: uint32(f.o.Layout.Slots), Groups: uint32(f.Groups()), Offset: offset, Ticks: ticks,
	}.Args()...)
}
