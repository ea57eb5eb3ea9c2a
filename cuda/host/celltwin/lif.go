package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// The latest time is a variable after the variables of the cell.
func init() {
	twins.Register("lif_observe", func(b *twins.Block, a *kernels.ObserveBound) {
		observeByRatio(b, a, kernels.LifVarLatest, lifStep)
	})
}

// rateFloor is the least usual spike rate, in spikes an observation: a neuron that never spikes is
// not called unusual for the first trace of a spike long ago.
const rateFloor = 0.05

// lifStep is the Go twin of Lif::step: every agent is a leaky integrate-and-fire neuron. Its
// current is the size of its view of the features; where the potential passes the threshold it
// spikes, several times when it passes it by far, and every spike raises the threshold for a while.
// Its ratio is its spike rate over its usual one.
func lifStep(o *observation, g *ratioGroup, inverse, rate float32) {
	potential, adaptation := o.each(kernels.LifVarPotential, 0), o.each(kernels.LifVarAdaptation, 0)
	trace, usually := o.each(kernels.LifVarTrace, 0), o.each(kernels.LifVarUsual, 0)
	jump, fade := o.float(kernels.LifAdapt), o.float(kernels.LifAdaptDecay)
	A, from := o.agents, 0
	if several {
		factor, views := g.look(o, kernels.LifProject)
		for row, values := range [][]float32{
			lanes.LifPotential: potential, lanes.LifAdaptation: adaptation, lanes.LifTrace: trace,
			lanes.LifUsual: usually, lanes.LifProject: factor, lanes.LifGain: o.weights[kernels.LifGain*A:][:A],
			lanes.LifLeak: o.weights[kernels.LifLeak*A:][:A], lanes.LifTraceRate: o.weights[kernels.LifTrace*A:][:A],
		} {
			g.lif.Float(row, values)
		}
		g.lif.Word(lanes.LifBins, g.bins)
		from = g.lif.Step(A, []float32{inverse, rate, jump, fade}, views)
	}
	for i := from; i < A; i++ {
		c := o.weights[i:]
		current := float32(c[kernels.LifGain*A] * fmath.Abs(project(c[kernels.LifProject*A:], A, g.front.now)))
		v := potential[i] + float32(fmath.Max(inverse, c[kernels.LifLeak*A])*(current-potential[i]))
		threshold := 1 + adaptation[i]
		spikes := float32(uint32(fmath.Min(v/threshold, kernels.LifBurst)))
		potential[i] = fmath.Min(v-float32(spikes*threshold), threshold)
		adaptation[i] = adaptation[i] - float32(fade*adaptation[i]) + float32(jump*spikes)
		trace[i] += float32(fmath.Max(inverse, c[kernels.LifTrace*A]) * (spikes - trace[i]))
		usual := usually[i] + rateFloor
		g.bins[i] = surpriseBin(trace[i] / usual)
		usually[i] += float32(rate * (fmath.Min(trace[i], float32(usualClip*usual)) - usually[i]))
	}
}
