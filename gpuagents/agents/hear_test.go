package agents

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestHear compares agents that hear values with agents that observe the same values as features:
// units, votes and counts have the same bits after each step, whatever the weights and values.
func TestHear(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	r := rand.New(rand.NewPCG(25, 1))
	for _, hidden := range []int{5, 8, 13, 32} {
		for _, bf16 := range []float64{0, 1} {
			t.Run(fmt.Sprintf("hidden %d bf16 %v", hidden, bf16), func(t *testing.T) {
				const agents, features, hears, group = 210, 2, 3, 7
				params := map[string]float64{"hidden": float64(hidden), "bf16": bf16}
				told := address(t, "gru", params, group, features+hears, 5)
				cell, err := address(t, "gru", params, group, features, 5).Hearing(hears)
				if err != nil {
					t.Fatalf("Hearing: %v", err)
				}
				w := randomWeights(r, hidden, features+hears, 5)
				if hidden == 8 { // the largest weights and biases that there are
					for i := range w.InputHidden {
						w.InputHidden[i] = []float32{-kernels.AgentWeight, kernels.AgentWeight}[r.IntN(2)]
					}
				}
				table, err := cell.Table(w)
				if err != nil {
					t.Fatalf("Table: %v", err)
				}
				hearing := makeAgents(t, d, cell, agents, Options{Weights: table, PageBytes: 4096})
				observing := makeAgents(t, d, told, agents, Options{Weights: table, PageBytes: 4096})
				ids := make([]uint32, agents)
				for i := range ids {
					ids[i] = uint32(i)
				}
				for step := range 12 {
					heard := make([]float32, hears)
					for i := range heard {
						heard[i] = []float32{0, 1, -1, 1.0 / 3, float32(r.NormFloat64()), 15.875, -40}[r.IntN(7)]
					}
					var part, all []float32
					for range ids {
						for range features {
							part = append(part, float32(r.NormFloat64()))
						}
						all = append(append(all, part[len(part)-features:]...), heard...)
					}
					if err := hearing.Hear(t.Context(), heard); err != nil {
						t.Fatalf("Hear: %v", err)
					}
					if _, err := hearing.Observe(t.Context(), ids, part); err != nil {
						t.Fatalf("hearing.Observe: %v", err)
					}
					if _, err := observing.Observe(t.Context(), ids, all); err != nil {
						t.Fatalf("observing.Observe: %v", err)
					}
					if step%3 == 0 {
						n := []int{1, 2, TickSteps + 1}[step/3%3]
						if _, err := hearing.Tick(t.Context(), n); err != nil {
							t.Fatalf("hearing.Tick: %v", err)
						}
						if _, err := observing.Tick(t.Context(), n); err != nil {
							t.Fatalf("observing.Tick: %v", err)
						}
					}
					got, want := units(t, hearing), units(t, observing)
					for i := range want {
						if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
							t.Fatalf("step %d, heard %v: unit %d is %v, want %v", step, heard, i, got[i], want[i])
						}
					}
					for _, v := range []int{kernels.AgentVarVote, kernels.AgentVarCounts, kernels.AgentVarRound} {
						if !bytes.Equal(column(t, hearing, v), column(t, observing, v)) {
							t.Fatalf("step %d, heard %v: %s differs", step, heard, cell.Vars()[v].Name)
						}
					}
				}
			})
		}
	}
}

// TestHearRefused: a cell or a call that does not fit what is heard is refused, with the cure.
func TestHearRefused(t *testing.T) {
	if _, err := address(t, "leaky", nil, 5, 1, 2).Hearing(1); !errors.Is(err, cells.ErrParameter) {
		t.Errorf("leaky hears: error %v, want an ErrParameter", err)
	}
	gru := address(t, "gru", nil, 5, 6, 2)
	for _, n := range []int{-1, 3, math.MaxInt} {
		if _, err := gru.Hearing(n); !errors.Is(err, cells.ErrParameter) {
			t.Errorf("%d inputs are heard: error %v, want an ErrParameter", n, err)
		}
	}
	cell, err := gru.Hearing(2)
	if err != nil {
		t.Fatalf("Hearing: %v", err)
	}
	if err := makeAgents(t, openNamed(t, *opentest.Name), cell, 10, Options{}).Hear(t.Context(),
		[]float32{1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("one value of two: error %v, want an ErrInvalid", err)
	}
}

// BenchmarkAgentsHear is a tick of agents that hear nothing, of agents that hear the same in all
// ticks, and of agents that vote before each tick and hear something else than in the tick before.
// The three take turns; the times are medians until the result is in host memory.
func BenchmarkAgentsHear(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, all := range []int64{10_000_000, 100_000_000} {
		b.Run(fmt.Sprintf("gru/h8/f32/%dM", all/1_000_000), func(b *testing.B) {
			n := scaled(d, all)
			deaf := address(b, "gru", nil, 64, 6, 5)
			cell, err := deaf.Hearing(2)
			if err != nil {
				b.Fatalf("Hearing: %v", err)
			}
			open := func(cell *cells.Addressed) *Agents {
				a, err := New(d, cell, n, Options{})
				if err != nil {
					b.Fatalf("New: %v", err)
				}
				fillPages(b, a)
				return a
			}
			ctx := b.Context()
			var swarms [3]*Agents
			for i, cell := range []*cells.Addressed{deaf, cell, cell} {
				swarms[i] = open(cell)
				defer swarms[i].Close()
			}
			heard := func(a *Agents, i int) {
				if err := a.Hear(ctx, []float32{float32(i%6) / 5, float32(i%2) / 5}); err != nil {
					b.Fatalf("Hear: %v", err)
				}
			}
			heard(swarms[1], 1)
			var took [3][]time.Duration
			twin := sampled(b, swarms[2])
			for i := range b.N + 3 {
				for k, a := range swarms {
					began := time.Now()
					if k == 2 {
						if _, err := a.Vote(ctx, consensus.Rule{}, uint64(i+1), true); err != nil {
							b.Fatalf("Vote: %v", err)
						}
						heard(a, i)
					}
					if _, err := a.Tick(ctx, 1); err != nil {
						b.Fatalf("Tick: %v", err)
					}
					if i >= 3 {
						took[k] = append(took[k], time.Since(began))
					}
				}
				heard(twin, i)
				if _, err := twin.Tick(ctx, 1); err != nil {
					b.Fatalf("Tick of the twin: %v", err)
				}
			}
			twin.check(b, swarms[2])
			for k, name := range []string{"deaf-us", "hears-us", "votes-us"} {
				slices.Sort(took[k])
				b.ReportMetric(float64(took[k][b.N/2].Nanoseconds())/1e3, name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
