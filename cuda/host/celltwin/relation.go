package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

const (
	// relationReach bounds the influence of a feature on another one, in spreads.
	relationReach = 8
	// relationRate is the step of the weights, and relationStart the step of the first
	// observations, over their number. RFC 0049: steps from 0.002 to 0.01 are equally good.
	relationRate  = 0.005
	relationStart = 0.5
)

// relation is what a group knows of the relations between its features: a linear prediction of each
// one by the others, of the same observation and of the one before. Its own past is left out: a
// feature with inertia would then follow itself, and a lost relation would hardly show.
type relation struct {
	weights []float32 // [R][2*I]
	miss    []float32 // [R]: mean |residual|
	now     []float32 // [R]: residuals of the current observation
	in      []float32 // [2*I]
}

// see sets now to the residuals of the features in spreads, and learns. inverse is one over the
// number of observations, and rate the rate of the usual residual.
func (r *relation) see(now, last []float32, inverse, rate float32) {
	I := len(now)
	for j := range now {
		r.in[j], r.in[I+j] = fmath.Clamp(now[j], relationReach), fmath.Clamp(last[j], relationReach)
	}
	for f := range r.now {
		w := r.weights[f*2*I:][:2*I]
		predicted, norm := float32(0), float32(ridge)
		for j, x := range r.in {
			if j == f || j == I+f {
				continue
			}
			predicted += float32(w[j] * x)
			norm += float32(x * x)
		}
		e := r.in[f] - predicted
		usual := r.miss[f] + errorFloor
		held := fmath.Clamp(e, float32(gradientClip*usual))
		gain := float32(fmath.Max(relationRate, float32(relationStart*inverse))*held) / norm
		for j, x := range r.in {
			if j != f && j != I+f {
				w[j] += float32(gain * x)
			}
		}
		r.miss[f] += float32(rate * (fmath.Min(fmath.Abs(e), float32(usualClip*usual)) - r.miss[f]))
		r.now[f] = e
	}
}

func (r *relation) load(o *observation) {
	if len(r.now) > 0 {
		o.loadGroup(kernels.PredictorVarRelation, r.weights)
		o.loadGroup(kernels.PredictorVarMiss, r.miss)
	}
}

func (r *relation) store(o *observation) {
	if len(r.now) > 0 {
		o.storeGroup(kernels.PredictorVarRelation, r.weights)
		o.storeGroup(kernels.PredictorVarMiss, r.miss)
	}
}
