package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// pace is what a group knows of the intervals between its observations, and how many blocks it knows
// enough to judge by. What agents expect rests on the last observations, at their usual interval.
// After an unusual one, a gap or another rate of observations, they expect the wrong thing. So known
// falls by how far an interval leaves the usual range, and recovers within as many observations as
// half of its blocks have. Intervals that come again widen the range.
type pace struct {
	time int64 // of the last observation
	// interval is the usual logarithm of an interval in nanoseconds, 0 before the first one, and
	// widest how much longer and shorter intervals usually are at most.
	interval float32
	widest   [2]float32
	known    float32 // blocks
}

const (
	// An interval is unusual from paceReach times the range and paceMargin on: known is divided by the
	// paceDoubt-th power of the excess. The range takes in paceWiden of at most paceMost nats, and all
	// of the first paceYoung observations. It shrinks by paceForget for each usual interval, and the
	// usual interval follows at paceRate. A short interval counts as paceShort nats less than the usual
	// one at most: events at random times have such intervals.
	paceReach  = 1.2
	paceMargin = 0.1
	paceDoubt  = 4
	paceWiden  = 1.0 / 4
	paceMost   = 4
	paceYoung  = 128
	paceForget = 1.0 / 16384
	paceRate   = 1.0 / 32
	paceShort  = 1
	// paceGain is how many blocks a block adds to known, until it has all that the group has.
	paceGain = 2
)

// see takes in the time of an observation, in unix nanoseconds. inverse is one over the number of
// observations with this one, block the observations of a block, and blocks the number of blocks of
// the group. An interval is how far two times are apart, forward or back: a clock that was set back
// is as unusual as a gap. Equal times tell nothing.
func (p *pace) see(t int64, inverse float32, block uint32, blocks float32) {
	p.known = fmath.Min(p.known+paceGain/float32(block), blocks)
	if inverse == 1 {
		p.time = t
	}
	if t == p.time {
		return
	}
	l := fmath.Log(float32(uint64(max(t, p.time)) - uint64(min(t, p.time))))
	p.time = t
	if p.interval == 0 {
		p.interval = l
	}
	d := fmath.Max(-paceShort, l-p.interval)
	widest := &p.widest[0]
	if d < 0 {
		widest = &p.widest[1]
	}
	if off := fmath.Abs(d) - float32(paceReach**widest) - paceMargin; off > 0 {
		p.known /= fmath.Exp(fmath.Min(80, float32(paceDoubt*off)))
		*widest += float32(fmath.Max(paceWiden, fmath.Min(1, float32(paceYoung*inverse))) * fmath.Min(off, paceMost))
	} else {
		*widest -= float32(paceForget * *widest)
	}
	p.interval += float32(fmath.Max(paceRate, inverse) * fmath.Min(d, 1))
}

func (p *pace) load(o *observation) {
	p.time = int64(o.u64[o.group64(kernels.PredictorVarTime)])
	p.interval = o.f32[o.group(kernels.PredictorVarInterval, 0)]
	o.loadGroup(kernels.PredictorVarWidest, p.widest[:])
	p.known = o.f32[o.group(kernels.PredictorVarKnown, 0)]
}

func (p *pace) store(o *observation) {
	o.u64[o.group64(kernels.PredictorVarTime)] = uint64(p.time)
	o.f32[o.group(kernels.PredictorVarInterval, 0)] = p.interval
	o.storeGroup(kernels.PredictorVarWidest, p.widest[:])
	o.f32[o.group(kernels.PredictorVarKnown, 0)] = p.known
}
