package celltwin

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// exactRegion is the agents of a region group in float64: inputs from the features in spreads, means
// and covariances by their definition over all observations that are learned, and distances by the
// inverse of the covariance.
type exactRegion struct {
	table        []float32
	agents       int
	filter, last [][]float64
	learned      [][][]float64 // by agent, the inputs that are learned
	usual, trace []float64
}

// inputs moves agent a by an observation and returns its inputs.
func (g *exactRegion) inputs(a int, now []float64, seen int) []float64 {
	w := func(c int) float64 { return float64(g.table[c*g.agents+a]) }
	x := make([]float64, int(w(kernels.RegionSize)))
	for k := range x {
		in := now[int(w(kernels.RegionFeature+k))]
		if w(kernels.RegionRough) == 1 {
			by := in - g.last[a][k]
			in, g.last[a][k] = by*by, in
		}
		g.filter[a][k] += max(1/float64(seen+1), w(kernels.RegionRate+k)) * (in - g.filter[a][k])
		x[k] = g.filter[a][k]
		if w(kernels.RegionRough) == 1 {
			x[k] = math.Log(x[k] + roughFloor)
		}
	}
	return x
}

// distance is the squared distance of x from the inputs that an agent has learned.
func distance(learned [][]float64, x []float64) float64 {
	m, n := len(x), float64(len(learned))
	mean, a := make([]float64, m), make([][]float64, m) // a is the covariance, with the difference as a last column
	for _, row := range learned {
		for i, v := range row {
			mean[i] += v / n
		}
	}
	for i := range a {
		a[i] = make([]float64, m+1)
		for j := range m {
			for _, row := range learned {
				a[i][j] += (row[i] - mean[i]) * (row[j] - mean[j]) / n
			}
		}
		a[i][i] += inputRidge*a[i][i] + pivotFloor
		a[i][m] = x[i] - mean[i]
	}
	for i := range m { // Gauss and Jordan
		for r := range m {
			if f := a[r][i] / a[i][i]; r != i {
				for c := range m + 1 {
					a[r][c] -= f * a[i][c]
				}
			}
		}
	}
	sum := 0.0
	for i := range m {
		sum += (x[i] - mean[i]) * a[i][m] / a[i][i]
	}
	return sum
}

// TestRegionEqualsFloat64 compares every agent with its definition while the group learns.
func TestRegionEqualsFloat64(t *testing.T) {
	const agents, learn = 12, 160
	for _, features := range []int{1, 4, 7} {
		b := bind(t, "region", map[string]float64{"learn_for": learn}, agents, features, cells.Weighted)
		s := newSwarm(t, b, 1<<18)
		g := &exactRegion{
			table: b.Weights(testSeed), agents: agents, learned: make([][][]float64, agents),
			usual: make([]float64, agents), trace: make([]float64, agents),
		}
		for range agents {
			g.filter = append(g.filter, make([]float64, kernels.RegionPicks))
			g.last = append(g.last, make([]float64, kernels.RegionPicks))
		}
		front := exactAgents{
			b: b, words: b.ParamBlock(), level: make([]float64, features), spread: make([]float64, features),
		}
		rng := rand.New(rand.NewPCG(uint64(features), 3))
		for n := range learn {
			x, cause := make([]float32, features), rng.NormFloat64()
			for f := range x {
				x[f] = float32(10 + cause + 0.3*rng.NormFloat64())
			}
			front.seen = uint64(n)
			level, spread := slices.Clone(front.level), slices.Clone(front.spread)
			now := front.see(x)
			if n >= learn/8 { // level and spread stay
				copy(front.level, level)
				copy(front.spread, spread)
			}
			s.series([]int64{int64(n) * 1e9}, x)
			page := s.floats()
			at := func(v, a int) float64 {
				return float64(page[int(s.layout.Offsets[v])/4+a])
			}
			for a := range agents {
				in := g.inputs(a, now, n)
				if n < learn/8 {
					continue
				}
				away := 0.0
				if n >= learn/8+kernels.RegionSettling {
					away = math.Log(1 + distance(g.learned[a], in)/float64(len(in)))
					g.trace[a] += (away - g.trace[a]) / 10
				}
				if n >= learn/3 {
					g.usual[a] += (away - g.usual[a]) / float64(n-learn/3+1)
				}
				g.learned[a] = append(g.learned[a], in)
				for v, want := range map[int]float64{
					kernels.RegionVarTrace: g.trace[a], kernels.RegionVarUsual: g.usual[a],
					kernels.RegionVarFilter: g.filter[a][0],
				} {
					if got := at(v, a); math.Abs(got-want) > 2e-3*(1+math.Abs(want)) {
						t.Fatalf("%d features, observation %d, agent %d: %s is %v, in float64 %v", features, n, a,
							s.layout.Vars[v].Name, got, want)
					}
				}
			}
		}
	}
}

// TestRegionFinds: a feature that leaves the others within its own range, one that stops, and one
// with a multiple of its noise are found; usual observations are not, and of a fault that lasts the
// agents learn nothing.
func TestRegionFinds(t *testing.T) {
	const rows, features, first = 1600, 5, 1200
	for name, wrong := range map[string]func(x []float32, row int, rng *rand.Rand){
		"nothing":  func([]float32, int, *rand.Rand) {},
		"relation": func(x []float32, _ int, _ *rand.Rand) { x[1] = 20 - x[1] },
		"stuck":    func(x []float32, _ int, _ *rand.Rand) { x[2] = 10.3 },
		"noise":    func(x []float32, _ int, rng *rand.Rand) { x[3] += float32(rng.NormFloat64()) },
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		s := newSwarm(t, bind(t, "region", nil, 48, features, cells.Weighted), 1<<18)
		times, x, slow := make([]int64, rows), make([]float32, rows*features), 0.0
		for row := range rows {
			times[row], slow = int64(row)*1e9, 0.9*slow+0.4*rng.NormFloat64()
			for f := range features {
				x[row*features+f] = float32(10 + slow + 0.1*rng.NormFloat64())
			}
			if row >= first {
				wrong(x[row*features:][:features], row, rng)
			}
		}
		out := s.series(times, x)
		away, before := 0, 0
		for row, d := range out.decisions {
			switch {
			case row < 400 && (d != kernels.VoteNormal || out.scores[row] != 0):
				t.Fatalf("%s: row %d has decision %d and score %v while the group learns", name, row, d,
					out.scores[row])
			case d == kernels.VoteNormal:
			case row < first:
				before++
			case row >= first+40:
				away++
			}
		}
		all := rows - first - 40
		least, most := all*9/10, all
		if name == "nothing" {
			least, most = 0, 8
		}
		if before > 24 || away < least || away > most {
			t.Errorf("%s: %d usual rows are away from normal, and %d of %d others", name, before, away, all)
		}
	}
}

func BenchmarkRegion(b *testing.B) { benchmarkFeatures(b, "region", nil, 64, 16, 8) }
