package agents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// BenchmarkAgentsRandom is Observe of n random agents of 100 million, from ids and inputs in Go to
// votes and decisions in Go: median and 99th percentile. The outcomes of the agents of two pages,
// and their state at the end, are compared with the host device. Run it with -benchtime 60x.
func BenchmarkAgentsRandom(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, c := range []struct {
		cell           string
		features, vote int
	}{{"leaky", 2, 2}, {"gru", 8, 5}} {
		b.Run(c.cell, func(b *testing.B) {
			all := scaled(d, 100_000_000)
			a := filledAgents(b, d, address(b, c.cell, nil, 64, c.features, c.vote), all)
			h := sampled(b, a)
			r := rand.New(rand.NewPCG(7, 8))
			for _, n := range []int{1, 64, 1024, 4096, 65_536, 1_000_000} {
				n := min(n, int(all)/2)
				const batches = 4
				var ids [batches][]uint32
				var inputs [batches][]float32
				for i := range batches {
					ids[i], inputs[i] = randomObservations(r, int(all), n, c.features)
				}
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					took := make([]time.Duration, 0, b.N)
					samples := make([]sample, 0, b.N+8)
					for i := range b.N + 8 {
						k := i % batches
						start := time.Now()
						out, err := a.Observe(b.Context(), ids[k], inputs[k])
						testkit.NoError(b, "a.Observe", err)
						if t := time.Since(start); i >= 8 {
							took = append(took, t)
						}
						samples = append(samples, sampleOf(h, ids[k], out))
					}
					for i, s := range samples {
						s.check(b, h, ids[i%batches], inputs[i%batches])
					}
					b.ReportMetric(float64(n)/reportTimes(b, took), "M/s")
				})
			}
			h.check(b, a)
		})
	}
}

// BenchmarkAgentsStages is the three stages of a call, Load, Step and Outcome, of n random agents
// of 100 million: medians. Copy is the copy of inputs of a million observations to pinned memory
// alone.
func BenchmarkAgentsStages(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Nanoseconds()) / 1e3
	}
	b.Run("copy", func(b *testing.B) {
		host, err := d.AllocHost(32<<20, "test")
		testkit.NoError(b, "d.AllocHost", err)
		defer host.Close()
		src := make([][]byte, 4)
		for i := range src {
			src[i] = slices.Repeat([]byte{byte(i + 1)}, 32<<20)
		}
		var took []time.Duration
		for i := range b.N + 4 {
			start := time.Now()
			if err := gpubatch.Copy(
				[]gpubatch.Part{{To: host.Bytes(), From: src[i%4]}}, func(int, int, int) error { return nil },
			); err != nil {
				b.Fatalf("gpubatch.Copy: %v, want no error", err)
			}
			took = append(took, time.Since(start))
		}
		b.ReportMetric(median(took), "p50-us")
		b.ReportMetric(0, "ns/op")
	})
	for _, c := range []struct {
		cell           string
		features, vote int
	}{{"leaky", 2, 2}, {"gru", 8, 5}} {
		all := scaled(d, 100_000_000)
		a := makeAgents(b, d, address(b, c.cell, nil, 64, c.features, c.vote), all, Options{})
		fillPages(b, a)
		for _, n := range []int{64, 65_536, 1_000_000} {
			ids, inputs := randomObservations(rand.New(rand.NewPCG(7, 8)), int(all), min(n, int(all)/2), c.features)
			b.Run(fmt.Sprint(c.cell, "/", n), func(b *testing.B) {
				var took [4][]time.Duration
				for range b.N + 4 {
					start := time.Now()
					o, err := a.Load(ids, inputs)
					took[0] = append(took[0], time.Since(start))
					testkit.NoError(b, "a.Load", err)
					start = time.Now()
					if _, err = a.Step(b.Context(), o); err != nil {
						b.Fatalf("a.Step: %v, want no error", err)
					}
					took[1] = append(took[1], time.Since(start))
					start = time.Now()
					if _, _, err = o.Outcome(b.Context()); err != nil {
						b.Fatalf("o.Outcome: %v, want no error", err)
					}
					took[2] = append(took[2], time.Since(start))
					start = time.Now()
					testkit.NoError(b, "o.Close", o.Close())
					took[3] = append(took[3], time.Since(start))
				}
				for i, name := range []string{"load-us", "step-us", "outcome-us", "close-us"} {
					b.ReportMetric(median(took[i]), name)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// sample is the votes and decisions of the agents that another swarm has too, in their order.
type sample struct{ votes, decisions []byte }

// sampleOf takes the sample of an outcome whose agents h has.
func sampleOf(h *Agents, ids []uint32, out Outcome) (s sample) {
	for i, id := range ids {
		if int64(id) < h.n {
			s.votes, s.decisions = append(s.votes, out.Votes[i]), append(s.decisions, out.Decisions[i])
		}
	}
	return s
}

// check steps the agents of h by their observations and compares the outcomes.
func (s sample) check(t testing.TB, h *Agents, ids []uint32, inputs []float32) {
	t.Helper()
	var few []uint32
	var fewInputs []float32
	features := len(inputs) / len(ids)
	for i, id := range ids {
		if int64(id) < h.n {
			few, fewInputs = append(few, id), append(fewInputs, inputs[i*features:][:features]...)
		}
	}
	if len(few) == 0 {
		return
	}
	want, err := h.Observe(t.Context(), few, fewInputs)
	testkit.NoError(t, "h.Observe", err)
	if !slices.Equal(s.votes, want.Votes) || !slices.Equal(s.decisions, want.Decisions) {
		t.Fatal("the outcomes differ from the host device")
	}
}
