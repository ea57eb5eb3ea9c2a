package cells

import (
	"math"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestRegionBlock: under a rule with weights, agents that are away have as many votes as let their
// share outvote the others; else each has one.
func TestRegionBlock(t *testing.T) {
	for _, c := range []struct {
		rule  kernels.Rule
		share float64
		loud  uint32
	}{
		{kernels.RuleWeighted, 0.15, 6}, {kernels.RuleWeighted, 0.9, 1}, {kernels.RulePlurality, 0.15, 1},
	} {
		b, err := region.Bind(map[string]float64{"share": c.share, "learn_for": 300}, 8, 4, Voting{Rule: c.rule})
		if err != nil {
			t.Fatal(err)
		}
		w := b.ParamBlock()
		if w[kernels.LeakyLoud] != c.loud || w[kernels.LeakyFrontRows] != 37 || w[kernels.LeakyWarmup] != 300 ||
			math.Float32frombits(w[kernels.RegionFrom]) != 100 {
			t.Errorf("%+v: block %v", c, w)
		}
	}
}

// TestRegionTable: an agent has different inputs of one kind, as many as fit and as its kind has.
func TestRegionTable(t *testing.T) {
	const agents = 30
	for _, features := range []int{1, 3, 32} {
		b := mustBind(t, "region", map[string]float64{"fast": 4, "slow": 16, "rough": 32}, agents, features)
		table := b.Weights(7)
		for a := range agents {
			at := func(c int) float32 { return table[c*agents+a] }
			kind := a % 3
			want := min(kernels.RegionPicks, []int{2, 1, 1}[kind]*features)
			if at(kernels.RegionSize) != float32(want) {
				t.Fatalf("agent %d has %v inputs, want %d", a, at(kernels.RegionSize), want)
			}
			if rough := at(kernels.RegionRough) == 1; rough != (kind == 2) {
				t.Fatalf("agent %d sees steps: %v", a, rough)
			}
			seen := map[[2]float32]bool{}
			for k := range int(at(kernels.RegionSize)) {
				f, rate := at(kernels.RegionFeature+k), at(kernels.RegionRate+k)
				of := map[float32]int{1: 0, 0.25: 0, 1.0 / 16: 1, 1.0 / 32: 2}
				if got, ok := of[rate]; !ok || got != kind || f < 0 || int(f) >= features || seen[[2]float32{f, rate}] {
					t.Fatalf("agent %d, input %d: feature %v at rate %v", a, k, f, rate)
				}
				seen[[2]float32{f, rate}] = true
			}
		}
	}
}
