package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
)

// Tick makes count ticks and returns the agents in each state after the last one. It looks at the
// end of ctx after each most ticks, and waits for those with the context wait.
func (x *Box) Tick(ctx, wait context.Context, count, most int) (tally []uint64, err error) {
	if count < 1 || most < 1 {
		return nil, fmt.Errorf("%w: %d ticks, %d at a time: use 1 or more", ErrInvalid, count, most)
	}
	if err := x.ready(wait); err != nil {
		return nil, err
	}
	x.states.MarkAll()
	if x.colony != nil {
		return x.tickColony(ctx, wait, count)
	}
	for _, m := range []device.Buffer{x.tally, x.counts} { // of an interrupted tick, counts are not 0
		if err := m.Fill(0, m.Size(), 0); err != nil {
			return nil, fault.Mark(err)
		}
	}
	failed := func(err error) error { return fault.Mark(errors.Join(err, x.stream.Sync(wait))) }
	if err := x.load(); err != nil {
		return nil, failed(err)
	}
	for i := range count {
		if i%most == 0 {
			if err := x.sync(wait); err != nil {
				return nil, err
			}
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		if err := x.launch(i == count-1); err != nil {
			return nil, failed(err)
		}
	}
	if err := x.store(); err != nil {
		return nil, failed(err)
	}
	if err := x.sync(wait); err != nil {
		return nil, err
	}
	tally = make([]uint64, spaceset.States)
	return tally, fault.Mark(x.tally.Read(0, device.Bytes(tally)))
}

// sync waits for all work of the stream.
func (x *Box) sync(ctx context.Context) error { return fault.Mark(x.stream.Sync(ctx)) }

// put launches a kernel with a thread for each of n.
func (x *Box) put(kernel string, n int64, parts ...[]device.Arg) error {
	var all []device.Arg
	for _, part := range parts {
		all = append(all, part...)
	}
	return x.stream.Launch(x.loaded[kernel], x.states.Shape(n), all...)
}

// words returns numbers as arguments.
func words(all ...int64) []device.Arg {
	made := make([]device.Arg, len(all))
	for i, n := range all {
		made[i] = device.Uint32(uint32(n))
	}
	return made
}

// buffers returns memory as arguments.
func buffers(all ...device.Buffer) []device.Arg {
	made := make([]device.Arg, len(all))
	for i, b := range all {
		made[i] = device.Ptr(b)
	}
	return made
}

// bit returns 1 for true.
func bit(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// pages returns the arguments for the pages.
func (x *Box) pages() []device.Arg {
	at := x.layout.Offsets
	all := append(buffers(x.memory.Arena(), x.frames), device.Uint64(uint64(x.layout.PageBytes)))
	return append(all, words(int64(x.per), int64(at[1]), int64(at[2]-at[1]), int64(len(x.o.Sides)))...)
}

// load puts into the stream what makes the list of the agents from the pages.
func (x *Box) load() error {
	return x.put(spaceset.Load, x.Len(), x.pages(), words(x.Len(), bit(x.cell.IsBoids())),
		buffers(x.positions, x.velocities))
}

// store puts into the stream what writes the list into the pages.
func (x *Box) store() error {
	return x.put(spaceset.Store, x.Len(), x.pages(), words(x.Len(), bit(x.cell.IsBoids())),
		buffers(x.positions, x.velocities, x.near))
}

// launch puts a tick of the list into the stream. If count is set, it adds the agents in each state to
// the tally.
func (x *Box) launch(count bool) error {
	return errors.Join(x.sort(x.Len()), x.step(count))
}

// sort puts into the stream what sorts the list of n agents by bins.
func (x *Box) sort(n int64) error {
	g := x.grid
	parts := words(g.all(), g.part())
	warps := 32 * g.parts() // a warp has a part
	return errors.Join(
		x.put(spaceset.Count, n, buffers(x.positions), words(n, g.n[0], g.n[1], g.n[2]), buffers(x.counts, x.ranks)),
		x.put(spaceset.Sum, warps, buffers(x.counts), parts, buffers(x.sums)),
		x.put(spaceset.Start, warps, buffers(x.counts), parts, buffers(x.sums, x.starts)),
		x.put(spaceset.Sort, n, buffers(x.positions, x.velocities), words(n, bit(x.cell.IsBoids()), g.n[0], g.n[1],
			g.n[2]), buffers(x.starts, x.ranks, x.sorted, x.sortedVelocities)),
	)
}

// step puts into the stream what moves the agents of the sorted list.
func (x *Box) step(count bool) error {
	n, g := x.Len(), x.grid
	where := append(words(n, g.n[0], g.n[1], g.n[2], g.reach, bit(x.o.Periodic)), device.Ptr(x.starts))
	if x.cell.IsBoids() {
		var most []device.Arg
		if x.o.Nearest > 0 {
			most = words(int64(x.o.Nearest))
		}
		return x.put(spaceset.Nearest(x.o.Nearest), n, buffers(x.sorted, x.sortedVelocities), where, x.boidsArgs(),
			buffers(x.positions, x.velocities, x.near), words(bit(count)), buffers(x.tally), most)
	}
	return x.put(spaceset.Circles, n, buffers(x.sorted), where, x.circlesArgs(), buffers(x.positions, x.near),
		words(bit(count)), buffers(x.tally))
}
