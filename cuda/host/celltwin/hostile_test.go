package celltwin

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// hostileValue is a finite float32 of a kind that breaks careless arithmetic.
func hostileValue(rng *rand.Rand) float32 {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.MaxFloat32
	case 2:
		return -math.MaxFloat32
	case 3:
		return math.SmallestNonzeroFloat32
	case 4:
		return 1e30
	case 5:
		return float32(math.Copysign(math.Pow(10, rng.Float64()*76-38), rng.NormFloat64()))
	default:
		return float32(rng.NormFloat64())
	}
}

// check fails the test unless all state is finite and the outputs are in their ranges.
func (s *swarm) check(t *testing.T, what string, out columns) {
	t.Helper()
	for i, score := range out.scores {
		if !(score >= 0 && score <= 1) {
			t.Fatalf("%s: score %v at %d", what, score, i)
		}
		if int(out.leaders[i]) >= s.bound.Agents {
			t.Fatalf("%s: leader %d of %d at %d", what, out.leaders[i], s.bound.Agents, i)
		}
		if out.decisions[i] >= uint32(len(s.bound.Cell.Candidates)) {
			t.Fatalf("%s: decision %d at %d", what, out.decisions[i], i)
		}
		if out.rounds[i] != uint64(i+1) {
			t.Fatalf("%s: round %d at %d", what, out.rounds[i], i)
		}
	}
	for k, v := range s.layout.Vars {
		if v.Elem != kernels.F32 {
			continue
		}
		n := v.Width * s.layout.Slots
		if !v.Group {
			n *= s.layout.Agents
		}
		for i, x := range s.floats()[s.layout.Offsets[k]/4:][:n] {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("%s: element %d of %s is %v", what, i, v.Name, x)
			}
		}
	}
}

// floats are the words of the page as float32.
func (s *swarm) floats() []float32 {
	o := openObservation(&twins.Block{}, &kernels.ObserveBound{
		Pages: s.page, PageBytes: uint64(len(s.page)), Layout: []uint32{1, 1, 0},
		Runs: device.Bytes(make([]uint32, kernels.RunWords)),
	})
	return o.f32
}

func TestHostileSeries(t *testing.T) {
	n := testkit.Of(3000, 2000) // the late giants are at 999 and 1,999
	series := map[string]func(rng *rand.Rand, i int) float32{
		"anything":      func(rng *rand.Rand, _ int) float32 { return hostileValue(rng) },
		"zeros":         func(*rand.Rand, int) float32 { return 0 },
		"constant":      func(*rand.Rand, int) float32 { return 1e-20 },
		"largest":       func(*rand.Rand, int) float32 { return math.MaxFloat32 },
		"between signs": func(_ *rand.Rand, i int) float32 { return math.MaxFloat32 * float32(1-2*(i%2)) },
		"late giant": func(rng *rand.Rand, i int) float32 {
			if i%1000 == 999 {
				return 1e30
			}
			return float32(rng.NormFloat64())
		},
		"growing": func(_ *rand.Rand, i int) float32 { return float32(math.Pow(10, float64(i%76)-38)) },
		"wakes":   func(rng *rand.Rand, i int) float32 { return float32(float64(i/1500) * rng.NormFloat64() * 1e20) },
	}
	for _, cell := range cells.Names() {
		for name, value := range series {
			for _, features := range []int{1, 4} {
				rng := rand.New(rand.NewPCG(9, uint64(features)))
				values := warmed(cell, 20)
				if cell != "region" {
					values["history"] = 20
				}
				if cell == "predictor" {
					values["learn"] = 1
				}
				s := newSwarm(t, bind(t, cell, values, 24, features, cells.Weighted), 1<<16)
				times, x := make([]int64, n), make([]float32, n*features)
				for i := range times {
					times[i] = []int64{0, math.MinInt64, math.MaxInt64, int64(i) * 1e12, -int64(i) * 1e9}[rng.IntN(5)]
					for f := range features {
						x[i*features+f] = value(rng, i)
					}
				}
				s.check(t, cell+"/"+name, s.series(times, x))
			}
		}
	}
}

// TestScaleRecovers: a stream whose values suddenly live at another scale is in its normal range
// again within a few hundred observations.
func TestScaleRecovers(t *testing.T) {
	s := newSwarm(t, bind(t, "predictor", nil, 32, 1, cells.Weighted), 1<<16)
	rng := rand.New(rand.NewPCG(1, 1))
	n := testkit.Of(3000, 2000) // the late giants are at 999 and 1,999
	times, x := make([]int64, n), make([]float32, n)
	for i := range x {
		times[i] = int64(i) * 300e9
		if i >= 1000 {
			x[i] = float32(1e9 * (1 + 0.1*rng.NormFloat64()))
		}
	}
	out := s.series(times, x)
	if out.decisions[1000] != 2 {
		t.Errorf("decision %d where the stream wakes up, want anomalous", out.decisions[1000])
	}
	spread := s.floats()[s.layout.Offsets[2]/4]
	if spread < 2e7 || spread > 1e9 {
		t.Errorf("spread %v after 2000 observations of deviation 1e8", spread)
	}
}

func FuzzPredictor(f *testing.F) {
	f.Add(uint64(1), float32(1), int64(0))
	f.Add(uint64(2), float32(3e38), int64(math.MinInt64))
	b := bind(f, "predictor", map[string]float64{"warmup": 20, "learn": 1}, 5, 2, cells.Weighted)
	f.Fuzz(func(t *testing.T, seed uint64, odd float32, at int64) {
		if odd != odd || math.IsInf(float64(odd), 0) {
			t.Skip("features are finite")
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newSwarm(t, b, 1<<15)
		times, x := make([]int64, 200), make([]float32, 400)
		for i := range x {
			x[i] = hostileValue(rng)
			if rng.IntN(4) == 0 {
				x[i] = odd
			}
			times[i/2] = at + rng.Int64()
		}
		s.check(t, "fuzz", s.series(times, x))
	})
}
