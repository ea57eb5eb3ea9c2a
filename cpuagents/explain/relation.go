package explain

import (
	"math"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

const (
	// mostRelated is the largest number of features whose relations are known.
	mostRelated = 8
	// A feature is predicted from the others as the cell does it (RFC 0049): inputs are bounded to
	// relationReach usual distances, and the step of the weights is relationRate.
	relationReach = 8
	relationRate  = 0.005
	relationStart = 0.5
	relationRidge = 0.1
	// A short mean of relationSize usual residuals is at the edge of what is usual. Of 51 changes
	// of correlation (seed 37) 38 are named so, and no more of other incidents than with none; 3
	// named 40, and took 2 % of the others.
	relationSize = 4
	leastMiss    = 0.01
)

// relations predict each feature of an entity from the other features, of the same row and of the
// previous row.
type relations struct {
	Weights []float64 // [features][2*features]
	Spread  []float64 // mean distances from the levels
	Last    []float64 // the row before, in spreads
	Miss    []float64 // mean sizes of the residuals
	Late    []float64 // short means of them
}

// newRelations returns relations that have seen nothing; nil for one feature, or too many.
func newRelations(features int) *relations {
	if features < 2 || features > mostRelated {
		return nil
	}
	return &relations{
		Weights: make([]float64, 2*features*features), Spread: make([]float64, features),
		Last: make([]float64, features), Miss: make([]float64, features), Late: make([]float64, features),
	}
}

// observe takes row n of an entity, from 0, as its distances from the levels; NaN for a missing
// value. It sets the surprise of each feature. Where a feature surprises by its own past, the
// relation adds nothing.
func (r *relations) observe(distances []float64, n uint64, open bool, out []surprise) {
	rate := max(slowRate, 1/float64(n+1))
	part := 1.0
	if open {
		part = 0.2
	}
	var in [2 * mostRelated]float64
	features, own := len(distances), 0.0
	for f, d := range distances {
		in[features+f] = r.Last[f]
		if math.IsNaN(d) {
			continue
		}
		size := math.Abs(d)
		if r.Spread[f] > 0 {
			in[f] = max(-relationReach, min(relationReach, d/r.Spread[f]))
			size = min(size, clip*r.Spread[f])
		}
		mix(&r.Spread[f], rate*part, size)
		for _, s := range out[f].size {
			own = max(own, s)
		}
	}
	for f, d := range distances {
		if math.IsNaN(d) {
			continue
		}
		told, norm := 0.0, relationRidge
		w := r.Weights[2*features*f:][:2*features]
		for j, x := range in[:2*features] {
			if j != f && j != features+f {
				told += float64(w[j] * x)
				norm += float64(x * x)
			}
		}
		e := in[f] - told
		usual := r.Miss[f] + leastMiss
		mix(&r.Late[f], max(driftRate, 1/float64(n+1)), min(math.Abs(e), clip*usual))
		if n >= warm {
			out[f].size[batch.RelationSurprise] = r.Late[f] / (relationSize * usual) * max(0, min(1, 2-own))
		}
		held := max(-4*usual, min(4*usual, e))
		gain := float64(part*max(relationRate, relationStart/float64(n+1))) * held / norm
		for j, x := range in[:2*features] {
			if j != f && j != features+f {
				w[j] += float64(gain * x)
			}
		}
		mix(&r.Miss[f], rate*part, min(math.Abs(e), clip*usual))
	}
	copy(r.Last, in[:features])
}
