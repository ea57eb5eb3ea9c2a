package space

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// grid is the bins of a box. Neighbours of an agent are at most reach bins away on the first axis,
// and at most one bin on the others.
type grid struct {
	n     [3]uint32
	reach int64
}

const (
	// fine is the bins of a radius on the first axis. A search goes over parts of the sorted list, one
	// for each two other axes, which are 2+1/fine radii long.
	fine = 4
	// most is the most bins for each agent, unless there are few agents.
	most = 4
)

// gridOf returns the bins of a box: as narrow as the radius allows, and not many more bins than
// agents.
func gridOf(o Options) grid {
	limit := max(64, most*o.Agents)
	for reach := int64(fine); reach > 1; reach /= 2 {
		if g := gridOfWidth(o, reach, 1); g.all() <= limit {
			return g
		}
	}
	for wider := 1.0; ; wider *= 1.2 { // it ends at 4 bins on each axis
		if g := gridOfWidth(o, 1, wider); g.all() <= limit {
			return g
		}
	}
}

// gridOfWidth returns bins that are wide radii wide, and a part of it on the first axis.
func gridOfWidth(o Options, reach int64, wide float64) grid {
	g := grid{n: [3]uint32{1, 1, 1}, reach: reach}
	for k, side := range o.Sides {
		per := 1.0
		if k == 0 {
			per = float64(reach)
		}
		// Steps in radii are rounded up by more than the 1e-9 here.
		g.n[k] = max(spaceset.Least, uint32(side/o.Radius/wide*per+1e-9))
	}
	return g
}

// all returns the number of bins. Sides have at most spaceset.MostRadii radii, and it is exact
// where it matters.
func (g grid) all() int64 {
	product := float64(g.n[0]) * float64(g.n[1]) * float64(g.n[2])
	if product > 1<<62 {
		return math.MaxInt64
	}
	return int64(g.n[0]) * int64(g.n[1]) * int64(g.n[2])
}

// partOf returns how many of n words a part has, which the kernels add together.
func partOf(n int64) int64 {
	const least, parts = 512, 4096
	return max(least, (n/parts+31)/32*32)
}

func partsOf(n int64) int64 { return (n + partOf(n) - 1) / partOf(n) }

// axes returns f for each axis, and 0 for a missing axis.
func (x *Box) axes(f func(radii float64) float64) [3]float64 {
	var all [3]float64
	for k, side := range x.o.Sides {
		all[k] = f(side / x.o.Radius)
	}
	return all
}

const steps = 1 << 32

// scale returns the steps of a position in radii, rounded up so that an agent that is near on the
// device is nearer than a radius.
func (x *Box) scale() [3]float64 {
	return x.axes(func(radii float64) float64 { return radii / steps * (1 + 1.0/(1<<20)) })
}

func single(v [3]float64) (x, y, z float32) { return float32(v[0]), float32(v[1]), float32(v[2]) }

func (x *Box) boids(count bool) spaceset.SteeredArgs {
	v := func(name string) float32 { return float32(x.cell.Value(name)) }
	a := spaceset.SteeredArgs{
		Sorted: device.Ptr(x.sorted), SortedVelocities: device.Ptr(x.sortedVelocities), NearArgs: x.nearby(x.Len()),
		Alignment: v("alignment"), Separation: float32(x.cell.Value("separation") * spaceset.Units / spaceset.One),
		Slowest: v("speed_min") * spaceset.Units, Fastest: v("speed_max") * spaceset.Units,
		Positions: device.Ptr(x.positions), Velocities: device.Ptr(x.velocities), States: device.Ptr(x.near),
		Count: device.Bit(count), Tally: device.Ptr(x.tally),
	}
	if within := x.cell.Value("distance") * x.cell.Value("distance"); within > 0 { // else nobody separates
		a.Within, a.Inverse = float32(within), float32(min(1/within, math.MaxFloat32))
	}
	cohesion := x.cell.Value("cohesion")
	a.Cx, a.Cy, a.Cz = single(x.axes(func(radii float64) float64 { return cohesion * radii / steps * spaceset.Units }))
	a.Mx, a.My, a.Mz = single(x.axes(func(radii float64) float64 { return steps / radii / spaceset.Units }))
	return a
}

func (x *Box) circles(count bool) spaceset.CirclesArgs {
	a, push := spaceset.CirclesArgs{
		Sorted: device.Ptr(x.sorted), NearArgs: x.nearby(x.Len()), Positions: device.Ptr(x.positions),
		States: device.Ptr(x.near), Count: device.Bit(count), Tally: device.Ptr(x.tally),
	}, -x.cell.Value("repulsion")/spaceset.One
	a.Mx, a.My, a.Mz = single(x.axes(func(radii float64) float64 { return push * steps / radii }))
	return a
}

// fastest returns the highest component of a first velocity, in units, so that the speed is at most
// the highest; 0: agents have no velocity.
func (x *Box) fastest() uint32 {
	if !x.cell.IsBoids() {
		return 0
	}
	return uint32(x.cell.Value("speed_max") * spaceset.Units / math.Sqrt(float64(len(x.o.Sides))))
}
