package celltwin

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestOffset: a change of one unit is seen on a base of 1e15 as on a base of 0: decisions are the
// same, and scores but for what the fraction of the first value makes. A base that is no whole
// number has an offset too.
func TestOffset(t *testing.T) {
	for _, cell := range cells.Names() {
		if c, _ := cells.Lookup(cell); c.Kernel == "" {
			continue
		}
		for _, features := range []int{1, 3} {
			r := rand.New(rand.NewPCG(4, uint64(features)))
			const n = 1500
			times, x := make([]int64, n), make([]float64, n*features)
			for i := range times {
				times[i] = int64(i) * 300e9
				for f := range features {
					x[i*features+f] = math.Round(4 * r.NormFloat64())
				}
			}
			for f := range features {
				x[f] = 0
			}
			x[1200*features] = 60
			run := func(base float64) columns {
				b := bind(t, cell, nil, 16, features, cells.Weighted)
				moved := slices.Clone(x)
				for i := range moved {
					moved[i] += base
				}
				swarm, out := newSwarm(t, b, 1<<17), columns{}
				for at := 0; at < n; at += 100 { // in batches, so that the page has the offset
					part := swarm.observe64([]kernels.Run{{Count: 100}}, times[at:at+100],
						moved[at*features:(at+100)*features])
					out.scores, out.decisions = append(out.scores, part.scores...),
						append(out.decisions, part.decisions...)
				}
				return out
			}
			want := run(0)
			for _, base := range []float64{65536, 1e6, -1e6, 1e8, 1e10, -1e12, 1e15} {
				got := run(base)
				if !slices.Equal(got.scores, want.scores) || !slices.Equal(got.decisions, want.decisions) {
					t.Errorf("%s, %d features on a base of %g: other decisions than on a base of 0",
						cell, features, base)
				}
			}
		}
	}
}

// TestOffsetFollows: a counter that grows far beyond its first value, is reset, or wraps, and a
// first value that is an outlier, leave an entity that sees a change of one unit again.
func TestOffsetFollows(t *testing.T) {
	const n = 60_000
	for _, way := range []struct {
		name string
		at   func(i int) float64
	}{
		{"grows, and stands", func(i int) float64 { return 1e6 * float64(min(i, 5000)) }},
		{"reset", func(i int) float64 {
			if i < 5000 {
				return 4e9 + 100*float64(i)
			}
			return 7
		}},
		{"wraps at 2^32", func(i int) float64 { return math.Mod(4.29e9+1e6*float64(min(i, 5000)), 1<<32) }},
		{"first value an outlier", func(i int) float64 {
			if i == 0 {
				return 1e15
			}
			return 3e9
		}},
	} {
		b := bind(t, "predictor", map[string]float64{"front": 200}, 8, 1, cells.Weighted)
		s := newSwarm(t, b, 1<<15)
		times, x := make([]int64, n), make([]float64, n)
		r := rand.New(rand.NewPCG(6, 6))
		for i := range x {
			times[i], x[i] = int64(i)*1e9, way.at(i)+math.Round(r.NormFloat64())
		}
		s.observe64([]kernels.Run{{Count: n}}, times, x)
		vars := kernels.PredictorVars(1, 0)
		if vars[kernels.PredictorVarOffset].Name != "offset" {
			t.Fatal("no offset")
		}
		page := s.floats()
		level := page[int(s.layout.Offsets[kernels.PredictorVarLevel])/4]
		spread := page[int(s.layout.Offsets[kernels.PredictorVarSpread])/4]
		if step := math.Nextafter32(float32(math.Abs(float64(level))), math.MaxFloat32); spread > 3 ||
			float64(step)-math.Abs(float64(level)) > 0.01 {
			t.Errorf("%s: level %g, spread %g: want a level near its offset, and a spread near 1",
				way.name, level, spread)
		}
	}
}

// TestNoOffset: features below 65536 have no offset, and agents see them as before.
func TestNoOffset(t *testing.T) {
	f := &front{offset: make([]int64, 1), above: make([]float32, 1), level: []float32{3}, spread: []float32{1}}
	for _, v := range []float64{0, 1e-30, -3.7, 1013.25, 65535.99, math.NaN()} {
		for _, round := range []uint64{0, 1, 1000} {
			f.raise([]float64{v}, round)
			if f.offset[0] != 0 || fmt.Sprint(f.above[0]) != fmt.Sprint(float32(v)) {
				t.Errorf("%v, round %d: offset %d, %v", v, round, f.offset[0], f.above[0])
			}
		}
	}
}
