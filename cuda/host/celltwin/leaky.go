package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// The latest time is a variable after the variables of the cell.
func init() {
	twins.Register("leaky_observe", func(b *twins.Block, a *kernels.ObserveBound) {
		observeByRatio(b, a, kernels.LeakyVarLatest, leakyStep)
	})
}

// leakyStep is the Go twin of Leaky::step: every agent integrates its view of the features with its
// own leak. Its ratio is how far, in its usual distances, the present view lies from the integral.
func leakyStep(o *observation, g *ratioGroup, inverse, rate float32) {
	potential, usually := o.each(kernels.LeakyVarPotential, 0), o.each(kernels.LeakyVarUsual, 0)
	A, from := o.agents, 0
	if several {
		factor, views := g.look(o, kernels.LeakyProject)
		g.leaky.Float(lanes.LeakyPotential, potential)
		g.leaky.Float(lanes.LeakyUsual, usually)
		g.leaky.Float(lanes.LeakyProject, factor)
		g.leaky.Float(lanes.LeakyRate, o.weights[kernels.LeakyRate*A:][:A])
		g.leaky.Word(lanes.LeakyBins, g.bins)
		from = g.leaky.Step(A, []float32{inverse, rate}, views)
	}
	for i := from; i < A; i++ {
		c := o.weights[i:]
		distance := project(c[kernels.LeakyProject*A:], A, g.front.now) - potential[i]
		usual := usually[i] + errorFloor
		g.bins[i] = surpriseBin(fmath.Abs(distance) / usual)
		potential[i] += float32(fmath.Max(inverse, c[kernels.LeakyRate*A]) * distance)
		usually[i] += float32(rate * (fmath.Min(fmath.Abs(distance), float32(usualClip*usual)) - usually[i]))
	}
}
