package celltwin

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// exactAgents is a group of lif or gru in float64, as the description of the cell reads: no
// rounding to float32, no bins, no pages. Before every observation it takes over the state of the
// group under test, so that rounding does not add up and a spike more or less does not part the two
// for good.
type exactAgents struct {
	b      *cells.Bound
	words  []uint32
	table  []float32
	seen   uint64
	level  []float64
	spread []float64
	agents map[int][][]float64 // by variable, agent, component
}

func (g *exactAgents) p(i int) float64 { return float64(math.Float32frombits(g.words[i])) }

func (g *exactAgents) take(s *swarm, vars []kernels.Var) {
	page := s.floats()
	at := func(v, c, a int) float64 {
		if vars[v].Group {
			return float64(page[int(s.layout.Offsets[v])/4+c*s.layout.Slots])
		}
		return float64(page[int(s.layout.Offsets[v])/4+c*s.layout.Slots*s.layout.Agents+a])
	}
	g.agents = map[int][][]float64{}
	for v := kernels.LeakyVarPotential; v < len(vars); v++ {
		g.agents[v] = make([][]float64, g.b.Agents)
		for a := range g.agents[v] {
			for c := range vars[v].Width {
				g.agents[v][a] = append(g.agents[v][a], at(v, c, a))
			}
		}
	}
	for f := range g.b.Features {
		g.level[f], g.spread[f] = at(kernels.LeakyVarLevel, f, 0), at(kernels.LeakyVarSpread, f, 0)
	}
}

// see is the observation in spreads; it moves level and spread.
func (g *exactAgents) see(x []float32) []float64 {
	now := make([]float64, len(x))
	for f, raw := range x {
		v := float64(raw)
		if g.seen == 0 {
			g.level[f], g.spread[f] = v, 0
		}
		unit := g.spread[f] + 1e-6*math.Abs(g.level[f]) + 1e-30
		d, rate := v-g.level[f], max(1/float64(g.seen+1), g.p(kernels.LeakyFrontRate))
		clip := g.p(kernels.LeakyClip)
		now[f] = max(-clip, min(clip, d/unit))
		if g.seen >= eager && math.Abs(d) >= clip*unit {
			d, rate = max(-clip*unit, min(clip*unit, d)), max(rate, jolt)
		}
		if g.seen < settling {
			now[f] = 0
		}
		g.level[f] += rate * d
		g.spread[f] += rate * (1.25*math.Abs(d) - g.spread[f])
	}
	return now
}

func (g *exactAgents) view(first, a int, now []float64) float64 {
	sum := 0.0
	for f, v := range now {
		sum += float64(g.table[first+f*g.b.Agents+a]) * v
	}
	return sum
}

// lif moves the agents and returns their ratios, and whether a spike hangs on rounding.
func (g *exactAgents) lif(now []float64) (ratios []float64, close []bool) {
	A, inverse := g.b.Agents, 1/float64(g.seen+1)
	for a := range A {
		w := func(c int) float64 { return float64(g.table[c*A+a]) }
		v, adapt := &g.agents[kernels.LifVarPotential][a][0], &g.agents[kernels.LifVarAdaptation][a][0]
		trace, usual := &g.agents[kernels.LifVarTrace][a][0], &g.agents[kernels.LifVarUsual][a][0]
		current := w(kernels.LifGain) * math.Abs(g.view(kernels.LifProject*A, a, now))
		*v += max(inverse, w(kernels.LifLeak)) * (current - *v)
		threshold := 1 + *adapt
		exact := min(*v/threshold, kernels.LifBurst)
		spikes := math.Floor(exact)
		*v = min(*v-spikes*threshold, threshold)
		*adapt += g.p(kernels.LifAdapt)*spikes - g.p(kernels.LifAdaptDecay)**adapt
		*trace += max(inverse, w(kernels.LifTrace)) * (spikes - *trace)
		floor := *usual + 0.05
		*usual += max(inverse, g.p(kernels.LeakyHistoryRate)) * (min(*trace, 8*floor) - *usual)
		ratios = append(ratios, *trace/floor)
		close = append(close, math.Abs(exact-math.Round(exact)) < 1e-4)
	}
	return ratios, close
}

// gru moves the agents and returns their ratios.
func (g *exactAgents) gru(now []float64) (ratios []float64, close []bool) {
	A, H := g.b.Agents, int(g.words[kernels.GruHidden])
	tanh := func(x float64) float64 { // the Padé approximant, which is what the cell is defined by
		x = max(-3, min(3, x))
		return x * (27 + x*x) / (27 + 9*x*x)
	}
	sigmoid := func(x float64) float64 { return (1 + tanh(x/2)) / 2 }
	own := kernels.GruShared(H)
	for a := range A {
		h, w := g.agents[kernels.GruVarHidden][a], g.agents[kernels.GruVarReadout][a]
		last, usual := &g.agents[kernels.GruVarLast][a][0], &g.agents[kernels.GruVarUsual][a][0]
		in := append(append([]float64{}, h...), *last)
		predicted, norm, square := 0.0, 0.1, 0.0
		for j := range in {
			predicted += w[j] * in[j]
			norm += in[j] * in[j]
			square += w[j] * w[j]
		}
		view := g.view(own+kernels.GruProject*A, a, now)
		e, floor := view-predicted, *usual+0.01
		for j := range in {
			w[j] += g.p(kernels.GruLearn) * max(-4*floor, min(4*floor, e)) / norm * in[j]
			if square > 1e4 {
				w[j] = 0
			}
		}
		*usual += max(1/float64(g.seen+1), g.p(kernels.LeakyHistoryRate)) * (min(math.Abs(e), 8*floor) - *usual)
		*last = max(-3, min(3, view))
		x := float64(g.table[own+kernels.GruOffset*A+a]) + float64(g.table[own+kernels.GruGain*A+a])**last
		next := make([]float64, H)
		for j := range next {
			gate := func(gate int) (input, units float64) {
				row := g.table[(gate*H+j)*(H+2):][:H+2]
				for k := range h {
					units += float64(row[k]) * h[k]
				}
				return float64(row[H+1]) + float64(row[H])*x, units
			}
			zi, zu := gate(kernels.GruUpdate)
			ri, ru := gate(kernels.GruReset)
			ni, nu := gate(kernels.GruNew)
			z, n := sigmoid(zi+zu), tanh(ni+sigmoid(ri+ru)*nu)
			next[j] = (1-z)*n + z*h[j]
		}
		copy(h, next)
		ratios, close = append(ratios, math.Abs(e)/floor), append(close, false)
	}
	return ratios, close
}

// TestRatioCellsEqualFloat64 compares every observation of random series with the cell in float64:
// the state afterwards within rounding, and the votes, but for agents whose ratio lies within
// rounding of a threshold or whose spike does.
func TestRatioCellsEqualFloat64(t *testing.T) {
	for _, c := range []struct {
		cell             string
		agents, features int
		values           map[string]float64
	}{
		{"lif", 40, 1, nil},
		{"lif", 7, 3, map[string]float64{"adapt": 1, "adapt_tau": 10, "reach_min": 0.5}},
		{"gru", 40, 1, nil},
		{"gru", 5, 3, map[string]float64{"hidden": 64, "learn": 0.3}},
		{"gru", 9, 2, map[string]float64{"hidden": 4}},
	} {
		t.Run(fmt.Sprintf("%s/%d/%d", c.cell, c.agents, c.features), func(t *testing.T) {
			values := map[string]float64{"warmup": 20}
			for k, v := range c.values {
				values[k] = v
			}
			b := bind(t, c.cell, values, c.agents, c.features, cells.Voting{Rule: kernels.RulePlurality})
			s := newSwarm(t, b, 1<<18)
			g := &exactAgents{
				b: b, words: b.ParamBlock(), table: b.Weights(testSeed),
				level: make([]float64, c.features), spread: make([]float64, c.features),
			}
			after := &exactAgents{b: b, level: make([]float64, c.features), spread: make([]float64, c.features)}
			vars, step := s.layout.Vars, g.lif
			if c.cell == "gru" {
				step = g.gru
			}
			rng := rand.New(rand.NewPCG(uint64(c.agents), 8))
			compared, loud := 0, 0
			for n, e := range randomEvents(rng, 600, 1, c.features) {
				g.take(s, vars)
				g.seen = uint64(n)
				ratios, close := step(g.see(e.features))
				out := s.series([]int64{e.time}, e.features)
				after.take(s, vars)
				for v, agents := range g.agents {
					for a, want := range agents {
						for k := range want {
							got := after.agents[v][a][k]
							if !close[a] && math.Abs(got-want[k]) > 1e-4*(1+math.Abs(want[k])) {
								t.Fatalf("observation %d, agent %d: %s[%d] is %v, in float64 %v", n, a, vars[v].Name, k,
									got, want[k])
							}
							compared++
						}
					}
				}
				if n < 20 {
					continue
				}
				least, most := [3]int{}, [3]int{}
				for a, r := range ratios {
					sure, vote := !close[a], 0
					for candidate, word := range []int{kernels.LeakySuspicious, kernels.LeakyAnomalous} {
						if r >= g.p(word) {
							vote = candidate + 1
						}
						sure = sure && math.Abs(r-g.p(word)) > 1e-3*g.p(word)
					}
					for candidate := range most {
						if sure && candidate == vote {
							least[candidate]++
						}
						if !sure || candidate == vote {
							most[candidate]++
						}
					}
				}
				for candidate, votes := range out.counts {
					if int(votes) < least[candidate] || int(votes) > most[candidate] {
						t.Fatalf("observation %d: %d votes for %d, in float64 %d to %d", n, votes, candidate,
							least[candidate], most[candidate])
					}
				}
				loud += int(out.counts[kernels.VoteAnomalous])
			}
			if loud == 0 || compared == 0 {
				t.Errorf("%d values compared, %d anomalous votes: the comparison proves nothing", compared, loud)
			}
		})
	}
}

func BenchmarkLif(b *testing.B) { benchmarkCell(b, "lif", 64, 16) }
func BenchmarkGru(b *testing.B) { benchmarkCell(b, "gru", 64, 16) }
