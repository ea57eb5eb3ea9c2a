package space

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// Tick makes count ticks and returns the agents in each state after the last one. After each most
// ticks it waits for them with the context wait, and checks ctx.
func (x *Box) Tick(ctx, wait context.Context, count, most int) (tally []uint64, err error) {
	if err := x.Begin(wait, count, most, x.ready); err != nil {
		return nil, err
	}
	if x.colony != nil {
		return x.tickColony(ctx, wait, count)
	}
	if err := x.Clear(x.tally, x.counts); err != nil { // of an interrupted tick, counts are not 0
		return nil, err
	}
	if err := x.load(); err != nil {
		return nil, x.Drain(wait, err)
	}
	if err := x.Steps(ctx, wait, count, most, func(i int) error { return x.launch(i == count-1) }); err != nil {
		return nil, err
	}
	if err := x.store(); err != nil {
		return nil, x.Drain(wait, err)
	}
	return x.Tally(wait, x.tally, spaceset.States)
}

// put launches a kernel with a thread for each of n.
func (x *Box) put(kernel string, n int64, args []device.Arg) error {
	return x.Stream.Launch(x.loaded[kernel], x.Columns.Shape(n), args...)
}

func (x *Box) pages() spaceset.PagesArgs {
	at := x.Layout().Offsets
	return spaceset.PagesArgs{
		Pages: device.Ptr(x.Memory().Arena()), Frames: device.Ptr(x.Frames), PageBytes: uint64(x.Layout().PageBytes),
		Per: uint32(x.PerPage()), At: at[1], Stride: at[2] - at[1], Dims: uint32(len(x.o.Sides)),
	}
}

func (x *Box) agents() uint32 { return uint32(x.Len()) }
func (x *Box) moving() uint32 { return device.Bit(x.cell.IsBoids()) }

// load gathers the positions and velocities of all agents from the pages.
func (x *Box) load() error {
	return x.put(spaceset.Load, x.Len(), spaceset.LoadArgs{
		PagesArgs: x.pages(), Agents: x.agents(), Moving: x.moving(), Positions: device.Ptr(x.positions),
		Velocities: device.Ptr(x.velocities),
	}.Args())
}

// store scatters positions, velocities and states into the pages.
func (x *Box) store() error {
	return x.put(spaceset.Store, x.Len(), spaceset.StoreArgs{
		PagesArgs: x.pages(), Agents: x.agents(), Moving: x.moving(), Positions: device.Ptr(x.positions),
		Velocities: device.Ptr(x.velocities), States: device.Ptr(x.near),
	}.Args())
}

// launch puts a tick of the list into the stream. If count is set, it adds the agents in each state
// to the tally.
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

// startOf puts into the stream the exclusive prefix sum of n counts, which also clears the counts.
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

// nearby returns the arguments of the spatial hash for a step of n agents.
func (x *Box) nearby(n int64) spaceset.NearArgs {
	g := x.grid
	a := spaceset.NearArgs{
		Agents: uint32(n), Nx: g.n[0], Ny: g.n[1], Nz: g.n[2], Reach: uint32(g.reach),
		Periodic: device.Bit(x.o.Periodic), Starts: device.Ptr(x.starts),
	}
	a.Sx, a.Sy, a.Sz = single(x.scale())
	return a
}

// step moves the agents of the sorted list.
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
