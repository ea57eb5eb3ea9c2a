package main

import (
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

const (
	hidden  = kernels.PredictorHidden
	readout = kernels.PredictorReadout

	errorFloor, rateFloor = 0.01, 0.05
	usualClip             = 8
)

// predictor is a step of predictorGroup of package celltwin, operation by operation. Its constants
// and their meaning are there.
func predictor() *program {
	const (
		driftFloor            = 0.005
		reach3, gradientClip  = 3, 4
		ridge, largestReadout = 0.1, 1e4
		roughReach            = 4
		weightBase            = kernels.MaxVoteWeight / 8
		weightGain            = kernels.MaxVoteWeight - weightBase
	)
	p := newProgram(5)
	inverse, rate := p.argument(lanes.ArgInverse), p.argument(lanes.ArgUsual)
	slow, learn := p.argument(lanes.ArgSlow), p.argument(lanes.ArgLearn)
	known := p.argument(lanes.ArgKnown)
	value, last := p.view(lanes.ViewValue), p.view(lanes.ViewLast)
	day, week := p.view(lanes.ViewDay), p.view(lanes.ViewWeek)
	of := func(component int) int { return p.row(lanes.RowTable + component) }

	// The units.
	var old, h [hidden]int
	for j := range old {
		old[j] = p.row(lanes.RowHidden + j)
	}
	for j := range h {
		in := kernels.PredictorIn + j*kernels.PredictorInputs
		v := p.sum(p.product(last, of(in+1)), of(in))
		for k := range old {
			v = p.sum(v, p.product(old[k], of(kernels.PredictorRecurrent+j*hidden+k)))
		}
		h[j] = p.toward(old[j], of(kernels.PredictorLeak+j), p.tanh(v))
	}
	for j := range h {
		p.store(lanes.RowHidden+j, h[j])
	}

	// The prediction.
	mean := p.row(lanes.RowMean)
	in := [readout]int{
		h[0], h[1], h[2], h[3],
		p.clampBy(p.minus(last, mean), reach3), p.product(known, p.clampBy(p.minus(day, mean), reach3)),
		p.clampBy(week, reach3),
	}
	var w [readout]int
	predicted, norm, square := p.float(0), p.float(ridge), p.float(0)
	for j, x := range in {
		w[j] = p.row(lanes.RowReadout + j)
		predicted = p.sum(p.product(x, w[j]), predicted)
		norm = p.sum(p.product(x, x), norm)
		square = p.sum(p.product(w[j], w[j]), square)
	}
	off := p.minus(value, mean)
	e := p.minus(off, predicted)
	size := p.abs(e)
	err := p.row(lanes.RowError)
	usual := p.sum(err, p.float(errorFloor))
	limit := p.product(usual, p.float(usualClip))
	fast := func(component int) int { return p.most(inverse, of(component)) }

	// Learning.
	held := p.clamp(e, p.product(usual, p.float(gradientClip)))
	gain := p.over(p.product(learn, held), norm)
	for j, x := range in {
		p.store(lanes.RowReadout+j, p.keep(p.sum(w[j], p.product(gain, x)), square, p.float(largestReadout)))
	}

	// The surprises.
	oldDrift := p.row(lanes.RowDrift)
	drift := p.toward(oldDrift, fast(kernels.PredictorFast), held)
	p.store(lanes.RowDrift, drift)
	drift = p.abs(drift)
	least := p.least(size, limit)
	unrest := p.toward(p.row(lanes.RowUnrest), fast(kernels.PredictorUnrest), least)
	p.store(lanes.RowUnrest, unrest)
	p.bin(lanes.RowBins+kernels.PredictorInstant, p.over(size, usual))
	p.bin(lanes.RowBins+kernels.PredictorRestless, p.over(p.sum(unrest, p.float(errorFloor)), usual))
	driftUsual := p.row(lanes.RowDriftUsual)
	floor := p.sum(driftUsual, p.float(driftFloor))
	p.bin(lanes.RowBins+kernels.PredictorLasting, p.over(drift, floor))
	p.store(lanes.RowDriftUsual, p.toward(driftUsual, rate, p.least(drift, p.product(floor, p.float(usualClip)))))

	step := p.log2Rough(p.sum(p.abs(p.minus(value, last)), p.float(errorFloor)))
	wasUsual := p.row(lanes.RowRoughUsual)
	near := p.sum(wasUsual, p.clampBy(p.minus(step, wasUsual), roughReach))
	rough := p.toward(p.row(lanes.RowRough), fast(kernels.PredictorRoughRate), near)
	p.store(lanes.RowRough, rough)
	roughUsual := p.toward(wasUsual, slow, step)
	p.store(lanes.RowRoughUsual, roughUsual)
	p.octaves(kernels.PredictorRough, p.minus(rough, roughUsual))
	p.octaves(kernels.PredictorCalm, p.minus(roughUsual, rough))

	away := p.toward(p.row(lanes.RowAway), fast(kernels.PredictorAwayRate), value)
	p.store(lanes.RowAway, away)
	away = p.abs(away)
	oldUsual := p.row(lanes.RowAwayUsual)
	awayUsual := p.sum(oldUsual, p.float(2*errorFloor))
	p.bin(lanes.RowBins+kernels.PredictorAway, p.over(p.sum(away, p.float(2*errorFloor)), awayUsual))
	p.store(lanes.RowAwayUsual, p.toward(oldUsual, slow, p.least(away, p.product(awayUsual, p.float(usualClip)))))

	// What a vote counts.
	naive := p.row(lanes.RowNaive)
	skill := p.minus(p.float(1), p.over(usual, p.sum(naive, p.float(2*errorFloor))))
	skill = p.most(p.float(0), p.least(p.float(1), skill))
	p.store(lanes.RowWeight, p.two("VPADDD", p.whole(p.product(skill, p.float(weightGain))), p.word(weightBase)))

	// The usual sizes and the level.
	p.store(lanes.RowNaive, p.toward(naive, rate, p.least(p.abs(off), limit)))
	p.store(lanes.RowError, p.toward(err, rate, least))
	p.store(lanes.RowMean, p.sum(mean, p.product(fast(kernels.PredictorSlow), p.clamp(off, limit))))
	return p
}

// bin is surpriseBin of package celltwin: the exponent of a ratio and five bits behind it.
func (p *program) bin(row, ratio int) {
	const lowest = (127 + kernels.SurpriseMinOctave) * kernels.SurpriseFine
	fine := p.add(op{name: opShift, args: []int{ratio}, by: 23 - 5})
	at := p.two("VPSUBD", fine, p.word(lowest))
	at = p.two("VPMAXSD", at, p.word(0))
	p.store(row, p.two("VPMINSD", at, p.word(kernels.SurpriseBins-1)))
}

// octaves is octaveBin of package celltwin.
func (p *program) octaves(kind, x int) {
	const one = -kernels.SurpriseMinOctave * kernels.SurpriseFine
	at := p.sum(p.product(x, p.float(kernels.SurpriseFine)), p.float(one))
	at = p.most(p.float(0), p.least(p.float(kernels.SurpriseBins-1), at))
	p.store(lanes.RowBins+kind, p.whole(at))
}
