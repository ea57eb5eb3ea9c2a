package space

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// grid is the bins of a box. Agents that are near an agent are in the reach bins on both sides on the
// first axis, and in the bin beside on the others.
type grid struct {
	n     [3]int64
	reach int64
}

const (
	// fine is the bins of a radius on the first axis. A search goes over parts of the sorted list, one for
	// each two other axes, which are 2+1/fine radii long.
	fine = 4
	// most is the most bins for each agent, unless there are few agents.
	most = 4
)

// gridOf returns the bins of a box: none is narrower than it must be, and there are not many more than
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

// gridOfWidth returns bins whose width is so many radii, and a part of that on the first axis.
func gridOfWidth(o Options, reach int64, wide float64) grid {
	g := grid{n: [3]int64{1, 1, 1}, reach: reach}
	for k, side := range o.Sides {
		per := 1.0
		if k == 0 {
			per = float64(reach)
		}
		// Steps in radii are rounded up by more than the 1e-9 here.
		g.n[k] = max(spaceset.Least, int64(side/o.Radius/wide*per+1e-9))
	}
	return g
}

// all returns the number of bins. Sides have at most spaceset.MostRadii radii, and it is exact where it matters.
func (g grid) all() int64 {
	product := float64(g.n[0]) * float64(g.n[1]) * float64(g.n[2])
	if product > 1<<62 {
		return math.MaxInt64
	}
	return g.n[0] * g.n[1] * g.n[2]
}

// partOf returns how many of n words a part has, which the kernels add together.
func partOf(n int64) int64 {
	const least, parts = 512, 4096
	return max(least, (n/parts+31)/32*32)
}

// partsOf returns how many there are.
func partsOf(n int64) int64 { return (n + partOf(n) - 1) / partOf(n) }

// part and parts are those of the bins.
func (g grid) part() int64  { return partOf(g.all()) }
func (g grid) parts() int64 { return partsOf(g.all()) }

// axes returns a number for each axis; those of an axis that is not there are 0.
func (x *Box) axes(f func(radii float64) float64) [3]float64 {
	var all [3]float64
	for k, side := range x.o.Sides {
		all[k] = f(side / x.o.Radius)
	}
	return all
}

// steps is the number of steps of a side.
const steps = 1 << 32

// scale returns the steps of a position in radii, rounded up so that an agent that is near on the device
// is nearer than a radius.
func (x *Box) scale() [3]float64 {
	return x.axes(func(radii float64) float64 { return radii / steps * (1 + 1.0/(1<<20)) })
}

// floats returns numbers as arguments.
func floats(all ...float64) []device.Arg {
	made := make([]device.Arg, len(all))
	for i, v := range all {
		made[i] = device.Float32(float32(v))
	}
	return made
}

// boidsArgs returns the arguments of a step of boids about how they steer.
func (x *Box) boidsArgs() []device.Arg {
	v := x.cell.Value
	within := v("distance") * v("distance")
	inverse := 0.0 // it is not used where nobody separates
	if within > 0 {
		inverse = min(1/within, math.MaxFloat32)
	}
	s := x.scale()
	c := x.axes(func(radii float64) float64 { return v("cohesion") * radii / steps * spaceset.Units })
	m := x.axes(func(radii float64) float64 { return steps / radii / spaceset.Units })
	return floats(s[0], s[1], s[2], within, inverse, c[0], c[1], c[2], v("alignment"),
		v("separation")*spaceset.Units/spaceset.One, v("speed_min")*spaceset.Units, v("speed_max")*spaceset.Units,
		m[0], m[1], m[2])
}

// circlesArgs is boidsArgs for circles.
func (x *Box) circlesArgs() []device.Arg {
	s, push := x.scale(), -x.cell.Value("repulsion")/spaceset.One
	m := x.axes(func(radii float64) float64 { return push * steps / radii })
	return floats(s[0], s[1], s[2], m[0], m[1], m[2])
}

// fastest returns the highest component of a first velocity, in units, so that the speed is at most the
// highest; 0: agents have no velocity.
func (x *Box) fastest() uint32 {
	if !x.cell.IsBoids() {
		return 0
	}
	return uint32(x.cell.Value("speed_max") * spaceset.Units / math.Sqrt(float64(len(x.o.Sides))))
}
