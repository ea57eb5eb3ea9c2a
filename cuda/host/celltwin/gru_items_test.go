package celltwin

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestScores: scores are within rounding of the logistic function of a readout in float64, and of
// extreme weights they are from 0 to 1.
func TestScores(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, units := range []int{1, 7, 8, 13, 32} {
		for _, deviation := range []float64{0.01, 0.3, 2, 40} {
			const items = 21
			weights, bias := make([]float32, items*units), make([]float32, items)
			draw := func() float32 { return float32(max(-128, min(128, r.NormFloat64()*deviation))) }
			for i := range weights {
				weights[i] = draw()
			}
			for i := range bias {
				bias[i] = draw()
			}
			class := 8
			for class < units {
				class *= 2
			}
			table := openItems(cells.ItemTable(units, weights, bias), items, class)
			state := make([]float32, class)
			for k := range units {
				state[k] = float32(2*r.Float64() - 1)
			}
			for item := range items {
				logit := float64(bias[item])
				for k := range units {
					logit += float64(weights[item*units+k]) * float64(state[k])
				}
				want, got := 1/(1+math.Exp(-logit)), float64(table.score(state, item))
				// A weight is off by 2^-15 of the largest at most, and a product of low bytes by 2^-16 of it.
				off := 1e-4 + 4*deviation*float64(units)*math.Ldexp(1, -15)
				if !(math.Abs(got-want) <= off) || got < 0 || got > 1 {
					t.Errorf("%d units, deviation %v, logit %v: score %v, want %v", units, deviation, logit, got, want)
				}
			}
		}
	}
}
