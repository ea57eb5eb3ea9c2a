// Package bytestate gathers and scatters variables of agents of one and of four bytes between arrays
// and pages on a device. Packages grid and graph step such agents.
package bytestate

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/staging"
)

// Agents is the agents of a device, with ids from 0 on. The fields do not change after Open.
//
// One goroutine uses it at a time. After an error of the device, a fault.ErrDevice, the states are
// undefined.
type Agents struct {
	Device    device.Device
	Stream    device.Stream
	Memory    *pages.Memory
	Frames    device.Buffer // the copy of the table of frames
	Count     int64         // agents
	Per       int           // agents of a page
	PageBytes int
	States    int   // a state is below it
	Invalid   error // errors about mistakes of the caller wrap it

	set, get    device.Kernel // of states
	put, take   device.Kernel // of variables
	ids, values staging.Buffer
}

// Open loads the kernels.
func (a *Agents) Open() (err error) {
	for name, to := range map[string]*device.Kernel{
		gridset.Set: &a.set, gridset.Get: &a.get, graphset.Put: &a.put, graphset.Take: &a.take,
	} {
		if *to, err = a.Device.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// Ready makes all pages that do not exist, and brings the table of frames up to date.
func (a *Agents) Ready(ctx context.Context) error {
	if err := a.Memory.Each(ctx, a.Memory.All(), pages.Sweep, func(int) error { return nil }); err != nil {
		return err
	}
	return fault.Mark(a.Memory.FlushFrames(a.Frames))
}

// Reset makes all states 0.
func (a *Agents) Reset(ctx context.Context) error {
	if err := a.Stream.Sync(ctx); err != nil {
		return fault.Mark(err)
	}
	return a.Memory.Reset(ctx)
}

// MarkAll marks all pages as changed.
func (a *Agents) MarkAll() {
	for page := range a.Memory.Count() {
		a.Memory.MarkDirty([]uint64{uint64(page)})
	}
}

// Shape returns a launch for so many threads with work.
func (a *Agents) Shape(threads int64) device.Geometry { return ShapeOn(a.Device, threads) }

// ShapeOn is Shape for a device.
func ShapeOn(on device.Device, threads int64) device.Geometry {
	blocks := max(1, min((threads+gridset.Block-1)/gridset.Block, maxBlocks))
	if d := on.Properties(); d.ComputeMajor == 0 { // the host device has a goroutine for each core
		blocks = min(blocks, int64(4*d.Multiprocessors))
	}
	return device.Geometry{Grid: int(blocks), Block: gridset.Block}
}

// Pieces calls f for the pieces of the states of n agents from id on that are consecutive on the device,
// with their place there and their distance from the first state. Pages are on the device.
func (a *Agents) Pieces(id, n int64, f func(place, off, bytes int64) error) error {
	per, size := int64(a.Per), int64(a.PageBytes)
	place := func(id int64) int64 { return int64(a.Memory.Frame(int(id/per)))*size + id%per }
	for off := int64(0); off < n; {
		begin := place(id + off)
		length := min(n-off, per-(id+off)%per)
		for off+length < n && place(id+off+length) == begin+length { // the next page is behind it
			length += min(n-off-length, per)
		}
		if err := f(begin, off, length); err != nil {
			return err
		}
		off += length
	}
	return nil
}

// maxBlocks is the most blocks of a launch: threads go on with other agents.
const maxBlocks = 1 << 16

// Set writes the states of agents. Of an agent that is there several times, the last state counts.
func (a *Agents) Set(ctx context.Context, ids []uint32, states []byte) error {
	for i, state := range states {
		if int(state) >= a.States {
			return fmt.Errorf("%w: state %d, at %d: use 0 to %d", a.Invalid, state, i, a.States-1)
		}
	}
	return a.SetAt(ctx, 0, ids, states)
}

// SetAt is Set for the bytes of a variable at an offset of each page, which may be any.
func (a *Agents) SetAt(ctx context.Context, offset uint32, ids []uint32, values []byte) error {
	return write(ctx, a, ids, values, a.set, a.bytes(offset))
}

// Put is Set for the words of a variable at an offset of each page.
func (a *Agents) Put(ctx context.Context, offset uint32, ids, words []uint32) error {
	return write(ctx, a, ids, words, a.put, a.words(offset))
}

// write writes values of agents with a kernel and its arguments for n agents.
func write[T byte | uint32](ctx context.Context, a *Agents, ids []uint32, values []T, k device.Kernel,
	args func(n int) []device.Arg,
) error {
	if len(ids) != len(values) {
		return fmt.Errorf("%w: %d values for %d agents", a.Invalid, len(values), len(ids))
	}
	last := make(map[uint32]T, len(ids))
	for i, id := range ids {
		if int64(id) >= a.Count {
			return fmt.Errorf("%w: agent %d of %d", a.Invalid, id, a.Count)
		}
		last[id] = values[i]
	}
	if len(last) == 0 {
		return nil
	}
	own, to, touched := make([]uint32, 0, len(last)), make([]T, 0, len(last)), map[uint64]bool{}
	for id, value := range last {
		own, to = append(own, id), append(to, value)
		touched[uint64(id)/uint64(a.Per)] = true
	}
	if err := a.Ready(ctx); err != nil {
		return err
	}
	for page := range touched {
		a.Memory.MarkDirty([]uint64{page})
	}
	content := device.Bytes(to)
	if err := a.stage(own, len(content)); err != nil {
		return err
	}
	if err := a.values.Memory.Write(0, content); err != nil {
		return fault.Mark(err)
	}
	return a.list(ctx, k, len(own), args)
}

// Get returns the states of agents. It makes no page and changes none.
func (a *Agents) Get(ctx context.Context, ids []uint32) ([]byte, error) {
	return a.GetAt(ctx, 0, ids)
}

// GetAt is Get for the bytes of a variable at an offset of each page.
func (a *Agents) GetAt(ctx context.Context, offset uint32, ids []uint32) ([]byte, error) {
	return read[byte](ctx, a, ids, a.get, a.bytes(offset))
}

// Take is Get for the words of a variable at an offset of each page.
func (a *Agents) Take(ctx context.Context, offset uint32, ids []uint32) ([]uint32, error) {
	return read[uint32](ctx, a, ids, a.take, a.words(offset))
}

// read reads values of agents with a kernel and its arguments for n agents.
func read[T byte | uint32](ctx context.Context, a *Agents, ids []uint32, k device.Kernel,
	args func(n int) []device.Arg,
) ([]T, error) {
	values, made := make([]T, len(ids)), a.Memory.Made()
	var own []uint32 // of pages that exist; the values of others are 0
	var at []int
	for i, id := range ids {
		if int64(id) >= a.Count {
			return nil, fmt.Errorf("%w: agent %d of %d", a.Invalid, id, a.Count)
		}
		if made[int64(id)/int64(a.Per)] {
			own, at = append(own, id), append(at, i)
		}
	}
	if len(own) == 0 {
		return values, nil
	}
	if err := a.Memory.FlushFrames(a.Frames); err != nil {
		return nil, fault.Mark(err)
	}
	found := make([]T, len(own))
	content := device.Bytes(found)
	if err := a.stage(own, len(content)); err != nil {
		return nil, err
	}
	if err := a.list(ctx, k, len(own), args); err != nil {
		return nil, err
	}
	if err := a.values.Memory.Read(0, content); err != nil {
		return nil, fault.Mark(err)
	}
	for i, k := range at {
		values[k] = found[i]
	}
	return values, nil
}

// stage makes room for ids and values on the device, and writes the ids.
func (a *Agents) stage(ids []uint32, values int) error {
	if err := errors.Join(a.ids.Grow(a.Device, 4*len(ids), "states"),
		a.values.Grow(a.Device, values, "states")); err != nil {
		return fault.Mark(err)
	}
	return fault.Mark(a.ids.Memory.Write(0, device.Bytes(ids)))
}

// Pages returns the arguments for the pages, each of which begins at a byte.
func (a *Agents) Pages(first uint32) graphset.PagesArgs {
	arena := a.Memory.Arena()
	return graphset.PagesArgs{
		Pages: device.Range(arena, int64(first), arena.Size()-int64(first)), Frames: device.Ptr(a.Frames),
		PageBytes: uint64(a.PageBytes), Per: uint32(a.Per),
	}
}

// bytes returns the arguments of set and get for n agents that are staged, and words those of put and
// take.
func (a *Agents) bytes(offset uint32) func(n int) []device.Arg {
	return func(n int) []device.Arg {
		p := a.Pages(offset)
		return gridset.CellsArgs{
			Pages: p.Pages, Frames: p.Frames, PageBytes: p.PageBytes, Per: p.Per,
			IDs: device.Ptr(a.ids.Memory), N: uint32(n), Values: device.Ptr(a.values.Memory),
		}.Args()
	}
}

func (a *Agents) words(offset uint32) func(n int) []device.Arg {
	return func(n int) []device.Arg {
		return graphset.WordsArgs{
			PagesArgs: a.Pages(0), Offset: offset, IDs: device.Ptr(a.ids.Memory), N: uint32(n),
			Values: device.Ptr(a.values.Memory),
		}.Args()
	}
}

// list launches a kernel for the n agents that are staged, and waits for it.
func (a *Agents) list(ctx context.Context, k device.Kernel, n int, args func(n int) []device.Arg) error {
	if err := a.Stream.Launch(k, a.Shape(int64(n)), args(n)...); err != nil {
		return fault.Mark(errors.Join(err, a.Stream.Sync(ctx)))
	}
	return fault.Mark(a.Stream.Sync(ctx))
}

// Close releases what Set and Get have allocated. A second call does nothing.
func (a *Agents) Close() error { return errors.Join(a.ids.Close(), a.values.Close()) }
