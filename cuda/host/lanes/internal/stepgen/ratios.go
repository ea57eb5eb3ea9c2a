package main

import (
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// leaky is leakyStep of package celltwin, operation by operation.
func leaky() *program {
	p := newProgram(2)
	inverse, rate := p.argument(lanes.ArgInverse), p.argument(lanes.ArgUsual)
	potential, usually := p.row(lanes.LeakyPotential), p.row(lanes.LeakyUsual)
	distance := p.minus(p.seen(lanes.LeakyProject), potential)
	far := p.abs(distance)
	usual := p.sum(usually, p.float(errorFloor))
	p.bin(lanes.LeakyBins, p.over(far, usual))
	p.store(lanes.LeakyPotential, p.sum(potential, p.product(p.most(inverse, p.row(lanes.LeakyRate)), distance)))
	p.store(lanes.LeakyUsual, p.toward(usually, rate, p.least(far, p.product(usual, p.float(usualClip)))))
	return p
}

// seen is what project of package celltwin returns for one feature.
func (p *program) seen(row int) int {
	return p.sum(p.product(p.view(lanes.ViewValue), p.row(row)), p.float(0))
}

// lif is lifStep of package celltwin, operation by operation.
func lif() *program {
	p := newProgram(4)
	inverse, rate := p.argument(lanes.ArgInverse), p.argument(lanes.ArgUsual)
	jump, fade := p.argument(lanes.ArgAdapt), p.argument(lanes.ArgAdaptDecay)
	potential, adaptation := p.row(lanes.LifPotential), p.row(lanes.LifAdaptation)
	fast := func(row int) int { return p.most(inverse, p.row(row)) }

	current := p.product(p.abs(p.seen(lanes.LifProject)), p.row(lanes.LifGain))
	v := p.toward(potential, fast(lanes.LifLeak), current)
	threshold := p.sum(adaptation, p.float(1))
	spikes := p.add(op{name: opToFloat, args: []int{p.whole(p.least(p.over(v, threshold), p.float(kernels.LifBurst)))}})
	p.store(lanes.LifPotential, p.least(p.minus(v, p.product(spikes, threshold)), threshold))
	faded := p.minus(adaptation, p.product(fade, adaptation))
	p.store(lanes.LifAdaptation, p.sum(faded, p.product(jump, spikes)))
	trace := p.toward(p.row(lanes.LifTrace), fast(lanes.LifTraceRate), spikes)
	p.store(lanes.LifTrace, trace)
	usually := p.row(lanes.LifUsual)
	usual := p.sum(usually, p.float(rateFloor))
	p.bin(lanes.LifBins, p.over(trace, usual))
	p.store(lanes.LifUsual, p.toward(usually, rate, p.least(trace, p.product(usual, p.float(usualClip)))))
	return p
}
