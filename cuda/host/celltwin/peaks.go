package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// peaks are the largest surprises of the visits of each half hour of the day, by kind, as bins. What
// surprises at the same half hour on two days running is usual there, as the jump of a daily cycle:
// agents are less surprised by as much as both visits were beyond a usual one. They stay in the page.
type peaks struct {
	slot  int
	fresh bool          // shift is of slot
	shift [kinds]uint32 // bins that are usual at the half hour of the present observation
}

// peakRate is the rate of the usual peak, a visit.
const peakRate = 1.0 / 32

// end takes in the present visit of a slot, which is over.
func (p *peaks) end(o *observation, slot int) {
	for k := range kinds {
		peak := &o.u32[o.group(kernels.PredictorVarPeak, k)]
		two := &o.u32[o.group(kernels.PredictorVarPeaks, slot*kinds+k)]
		*two = *two<<16 | *peak
		usual := &o.f32[o.group(kernels.PredictorVarPeakUsual, k)]
		if *usual == 0 {
			*usual = float32(*peak)
		}
		*usual += float32(peakRate * (float32(*peak) - *usual))
		*peak = 0
	}
	p.fresh = false
}

// recall sets shift for an observation in a slot.
func (p *peaks) recall(o *observation, slot int) {
	if p.fresh && p.slot == slot {
		return
	}
	p.slot, p.fresh = slot, true
	for k := range p.shift {
		two := o.u32[o.group(kernels.PredictorVarPeaks, slot*kinds+k)]
		both := float32(min(two&0xffff, two>>16))
		p.shift[k] = uint32(fmath.Max(0, both-o.f32[o.group(kernels.PredictorVarPeakUsual, k)]))
	}
}

// lower takes what is usual from the surprises of agents.
func (p *peaks) lower(bins *[kinds][]uint32) {
	for k, shift := range p.shift {
		if shift == 0 {
			continue
		}
		for i, bin := range bins[k] {
			bins[k][i] = bin - min(bin, shift)
		}
	}
}

// learn takes in the surprises of the group, which lower has lowered.
func (p *peaks) learn(o *observation, bins [kinds]uint32) {
	for k, bin := range bins {
		peak := &o.u32[o.group(kernels.PredictorVarPeak, k)]
		*peak = max(*peak, min(bin+p.shift[k], kernels.SurpriseBins-1))
	}
}
