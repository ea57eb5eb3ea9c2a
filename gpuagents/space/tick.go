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
func (x *Box) put(kernel string, n int64, args []device.Arg) error {
	return x.stream.Launch(x.loaded[kernel], x.states.Shape(n), args...)
}

// pages returns the arguments for the pages.
func (x *Box) pages() spaceset.PagesArgs {
	at := x.layout.Offsets
	return spaceset.PagesArgs{
		Pages: device.Ptr(x.memory.Arena()), Frames: device.Ptr(x.frames), PageBytes: uint64(x.layout.PageBytes),
		Per: uint32(x.per), At: at[1], Stride: at[2] - at[1], Dims: uint32(len(x.o.Sides)),
	}
}

// agents returns the number of agents as an argument, and moving whether they have velocities.
func (x *Box) agents() uint32 { return uint32(x.Len()) }
func (x *Box) moving() uint32 { return device.Bit(x.cell.IsBoids()) }

// load puts into the stream what makes the list of the agents from the pages.
func (x *Box) load() error {
	return x.put(spaceset.Load, x.Len(), spaceset.LoadArgs{
		PagesArgs: x.pages(), Agents: x.agents(), Moving: x.moving(), Positions: device.Ptr(x.positions),
		Velocities: device.Ptr(x.velocities),
	}.Args())
}

// store puts into the stream what writes the list into the pages.
func (x *Box) store() error {
	return x.put(spaceset.Store, x.Len(), spaceset.StoreArgs{
		PagesArgs: x.pages(), Agents: x.agents(), Moving: x.moving(), Positions: device.Ptr(x.positions),
		Velocities: device.Ptr(x.velocities), States: device.Ptr(x.near),
	}.Args())
}

// launch puts a tick of the list into the stream. If count is set, it adds the agents in each state to
// the tally.
func (x *Box) launch(count bool) error {
	return errors.Join(x.sort(x.Len()), x.step(count))
}

// sort puts into the stream what sorts the list of n agents by bins.
func (x *Box) sort(n int64) error {
	g, agents, positions, ranks := x.grid, uint32(n), device.Ptr(x.positions), device.Ptr(x.ranks)
	counts, starts := device.Ptr(x.counts), device.Ptr(x.starts)
	return errors.Join(
		x.put(spaceset.Count, n, spaceset.CountArgs{
			Positions: positions, Agents: agents, Nx: g.n[0], Ny: g.n[1], Nz: g.n[2], Counts: counts, Ranks: ranks,
		}.Args()),
		x.startOf(g.all(), x.counts, x.sums, x.starts),
		x.put(spaceset.Sort, n, spaceset.SortArgs{
			Positions: positions, Velocities: device.Ptr(x.velocities), Agents: agents, Moving: x.moving(),
			Nx: g.n[0], Ny: g.n[1], Nz: g.n[2], Starts: starts, Ranks: ranks, Sorted: device.Ptr(x.sorted),
			SortedVelocities: device.Ptr(x.sortedVelocities),
		}.Args()),
	)
}

// startOf puts into the stream what turns n counts into places, and makes them 0.
func (x *Box) startOf(n int64, counts, sums, starts device.Buffer) error {
	part, warps := uint32(partOf(n)), 32*partsOf(n) // a warp has a part
	return errors.Join(
		x.put(spaceset.Sum, warps, spaceset.SumArgs{
			Counts: device.Ptr(counts), Bins: uint32(n), Part: part, Sums: device.Ptr(sums),
		}.Args()),
		x.put(spaceset.Start, warps, spaceset.StartArgs{
			Counts: device.Ptr(counts), Bins: uint32(n), Part: part, Sums: device.Ptr(sums), Starts: device.Ptr(starts),
		}.Args()),
	)
}

// nearby returns the arguments of a step of n agents about where others are.
func (x *Box) nearby(n int64) spaceset.NearArgs {
	g := x.grid
	a := spaceset.NearArgs{
		Agents: uint32(n), Nx: g.n[0], Ny: g.n[1], Nz: g.n[2], Reach: uint32(g.reach),
		Periodic: device.Bit(x.o.Periodic), Starts: device.Ptr(x.starts),
	}
	a.Sx, a.Sy, a.Sz = single(x.scale())
	return a
}

// step puts into the stream what moves the agents of the sorted list.
func (x *Box) step(count bool) error {
	kernel, n := spaceset.Nearest(x.o.Nearest), x.Len()
	switch {
	case !x.cell.IsBoids():
		return x.put(spaceset.Circles, n, x.circles(count).Args())
	case x.o.Nearest > 0:
		return x.put(kernel, n, spaceset.NearestArgs{SteeredArgs: x.boids(count), Most: uint32(x.o.Nearest)}.Args())
	}
	return x.put(kernel, n, spaceset.BoidsArgs{SteeredArgs: x.boids(count)}.Args())
}
