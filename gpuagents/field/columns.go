package field

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Columns gathers and scatters variables of one and of four bytes between arrays by agent and the
// pages of a device. Ids are from 0 on. The fields do not change after Open.
//
// One goroutine uses it at a time. After an error of the device, a gpubatch.ErrDevice, the states
// are undefined.
type Columns struct {
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
	ids, values gpubatch.Buffer
}

// Open loads the kernels.
func (c *Columns) Open() (err error) {
	for name, to := range map[string]*device.Kernel{
		gridset.Set: &c.set, gridset.Get: &c.get, graphset.Put: &c.put, graphset.Take: &c.take,
	} {
		if *to, err = c.Device.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// Elements returns the columns of variables with n elements for each agent: element k of an agent
// has the id n*id+k. The caller opens and closes it.
func (c *Columns) Elements(n int) Columns {
	return Columns{
		Device: c.Device, Stream: c.Stream, Memory: c.Memory, Frames: c.Frames, Count: int64(n) * c.Count,
		Per: n * c.Per, PageBytes: c.PageBytes, States: c.States, Invalid: c.Invalid,
	}
}

// Ready makes all pages that do not exist, and brings the table of frames up to date.
func (c *Columns) Ready(ctx context.Context) error {
	if err := c.Memory.Each(ctx, c.Memory.All(), pages.Sweep, func(int) error { return nil }); err != nil {
		return err
	}
	return gpubatch.Mark(c.Memory.FlushFrames(c.Frames))
}

// Shape returns a launch for a number of threads with work.
func (c *Columns) Shape(threads int64) device.Geometry { return ShapeOn(c.Device, threads) }

// ShapeOn is Shape for a device.
func ShapeOn(on device.Device, threads int64) device.Geometry {
	blocks := max(1, min((threads+gridset.Block-1)/gridset.Block, maxBlocks))
	if d := on.Properties(); d.ComputeMajor == 0 { // the host device has a goroutine for each core
		blocks = min(blocks, int64(4*d.Multiprocessors))
	}
	return device.Geometry{Grid: int(blocks), Block: gridset.Block}
}

// Pieces calls f for the pieces of the states of n agents from id on that are consecutive on the
// device, with their offset there and their distance from the first state. Pages are on the device.
func (c *Columns) Pieces(id, n int64, f func(at, off, bytes int64) error) error {
	per, size := int64(c.Per), int64(c.PageBytes)
	at := func(id int64) int64 { return int64(c.Memory.Frame(int(id/per)))*size + id%per }
	for off := int64(0); off < n; {
		first := at(id + off)
		length := min(n-off, per-(id+off)%per)
		for off+length < n && at(id+off+length) == first+length { // the next page is behind it
			length += min(n-off-length, per)
		}
		if err := f(first, off, length); err != nil {
			return err
		}
		off += length
	}
	return nil
}

// maxBlocks is the max blocks of a launch. Threads loop over further agents.
const maxBlocks = 1 << 16

// Set writes the states of agents. If an agent occurs several times, its last state counts.
func (c *Columns) Set(ctx context.Context, ids []uint32, states []byte) error {
	for i, state := range states {
		if int(state) >= c.States {
			return fmt.Errorf("%w: state %d, at %d: use 0 to %d", c.Invalid, state, i, c.States-1)
		}
	}
	return c.SetAt(ctx, 0, ids, states)
}

// SetAt is Set for the bytes of a variable at an offset of each page, which may be any.
func (c *Columns) SetAt(ctx context.Context, offset uint32, ids []uint32, values []byte) error {
	return write(ctx, c, ids, values, c.set, c.bytes(offset))
}

// Put is Set for the words of a variable at an offset of each page.
func (c *Columns) Put(ctx context.Context, offset uint32, ids, words []uint32) error {
	return write(ctx, c, ids, words, c.put, c.words(offset))
}

// write scatters values with the kernel k. args returns its arguments for n agents.
func write[T byte | uint32](ctx context.Context, c *Columns, ids []uint32, values []T, k device.Kernel,
	args func(n int) []device.Arg,
) error {
	if len(ids) != len(values) {
		return fmt.Errorf("%w: %d values for %d agents", c.Invalid, len(values), len(ids))
	}
	last := make(map[uint32]T, len(ids))
	for i, id := range ids {
		if int64(id) >= c.Count {
			return fmt.Errorf("%w: agent %d of %d", c.Invalid, id, c.Count)
		}
		last[id] = values[i]
	}
	if len(last) == 0 {
		return nil
	}
	own, to, touched := make([]uint32, 0, len(last)), make([]T, 0, len(last)), map[uint64]bool{}
	for id, value := range last {
		own, to = append(own, id), append(to, value)
		touched[uint64(id)/uint64(c.Per)] = true
	}
	if err := c.Ready(ctx); err != nil {
		return err
	}
	for page := range touched {
		c.Memory.MarkDirty([]uint64{page})
	}
	content := device.Bytes(to)
	if err := c.stage(own, len(content)); err != nil {
		return err
	}
	if err := c.values.Memory.Write(0, content); err != nil {
		return gpubatch.Mark(err)
	}
	return c.list(ctx, k, len(own), args)
}

// Get returns the states of agents. It makes no page and changes none.
func (c *Columns) Get(ctx context.Context, ids []uint32) ([]byte, error) {
	return c.GetAt(ctx, 0, ids)
}

// GetAt is Get for the bytes of a variable at an offset of each page.
func (c *Columns) GetAt(ctx context.Context, offset uint32, ids []uint32) ([]byte, error) {
	return read[byte](ctx, c, ids, c.get, c.bytes(offset))
}

// Take is Get for the words of a variable at an offset of each page.
func (c *Columns) Take(ctx context.Context, offset uint32, ids []uint32) ([]uint32, error) {
	return read[uint32](ctx, c, ids, c.take, c.words(offset))
}

// read gathers values with the kernel k. args returns its arguments for n agents.
func read[T byte | uint32](ctx context.Context, c *Columns, ids []uint32, k device.Kernel,
	args func(n int) []device.Arg,
) ([]T, error) {
	values, made := make([]T, len(ids)), c.Memory.Made()
	var own []uint32 // of pages that exist; the values of others are 0
	var at []int
	for i, id := range ids {
		if int64(id) >= c.Count {
			return nil, fmt.Errorf("%w: agent %d of %d", c.Invalid, id, c.Count)
		}
		if made[int64(id)/int64(c.Per)] {
			own, at = append(own, id), append(at, i)
		}
	}
	if len(own) == 0 {
		return values, nil
	}
	if err := c.Memory.FlushFrames(c.Frames); err != nil {
		return nil, gpubatch.Mark(err)
	}
	found := make([]T, len(own))
	content := device.Bytes(found)
	if err := c.stage(own, len(content)); err != nil {
		return nil, err
	}
	if err := c.list(ctx, k, len(own), args); err != nil {
		return nil, err
	}
	if err := c.values.Memory.Read(0, content); err != nil {
		return nil, gpubatch.Mark(err)
	}
	for i, k := range at {
		values[k] = found[i]
	}
	return values, nil
}

func (c *Columns) stage(ids []uint32, values int) error {
	if err := errors.Join(c.ids.Grow(c.Device, 4*len(ids), "states"),
		c.values.Grow(c.Device, values, "states")); err != nil {
		return gpubatch.Mark(err)
	}
	return gpubatch.Mark(c.ids.Memory.Write(0, device.Bytes(ids)))
}

// Pages returns the arguments for the pages, from the byte first of each page on.
func (c *Columns) Pages(first uint32) graphset.PagesArgs {
	arena := c.Memory.Arena()
	return graphset.PagesArgs{
		Pages: device.Range(arena, int64(first), arena.Size()-int64(first)), Frames: device.Ptr(c.Frames),
		PageBytes: uint64(c.PageBytes), Per: uint32(c.Per),
	}
}

// bytes returns the arguments of the kernels set and get for n staged agents. words returns the
// arguments of put and take.
func (c *Columns) bytes(offset uint32) func(n int) []device.Arg {
	return func(n int) []device.Arg {
		p := c.Pages(offset)
		return gridset.CellsArgs{
			Pages: p.Pages, Frames: p.Frames, PageBytes: p.PageBytes, Per: p.Per,
			IDs: device.Ptr(c.ids.Memory), N: uint32(n), Values: device.Ptr(c.values.Memory),
		}.Args()
	}
}

func (c *Columns) words(offset uint32) func(n int) []device.Arg {
	return func(n int) []device.Arg {
		return graphset.WordsArgs{
			PagesArgs: c.Pages(0), Offset: offset, IDs: device.Ptr(c.ids.Memory), N: uint32(n),
			Values: device.Ptr(c.values.Memory),
		}.Args()
	}
}

// list launches a kernel for the n agents that are staged, and waits for it.
func (c *Columns) list(ctx context.Context, k device.Kernel, n int, args func(n int) []device.Arg) error {
	if err := c.Stream.Launch(k, c.Shape(int64(n)), args(n)...); err != nil {
		return gpubatch.Mark(errors.Join(err, c.Stream.Sync(ctx)))
	}
	return gpubatch.Mark(c.Stream.Sync(ctx))
}

// Close releases what Set and Get have allocated. A second call does nothing.
func (c *Columns) Close() error { return errors.Join(c.ids.Close(), c.values.Close()) }
