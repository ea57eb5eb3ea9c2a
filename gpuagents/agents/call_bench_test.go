package agents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkAgentsRandom is Observe of n random agents of 100 million, from ids and inputs in Go to
// votes and decisions in Go: median and 99th percentile. The outcomes of the agents of two pages,
// and their state at the end, are compared with those of the host device. Run it with -benchtime
// 60x.
func BenchmarkAgentsRandom(b *testing.B) {
	d := openNamed(b, *deviceName)
	for _, c := range []struct {
		cell           string
		features, vote int
	}{{"leaky", 2, 2}, {"gru", 8, 5}} {
		b.Run(c.cell, func(b *testing.B) {
			all := scaled(d, 100_000_000)
			a, err := New(d, address(b, c.cell, nil, 64, c.features, c.vote), all, Options{})
			if err != nil {
				b.Fatalf("New: %v, want no error", err)
			}
			defer a.Close()
			fillPages(b, a)
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
					for i := range b.N + 8 {
						k := i % batches
						start := time.Now()
						out, err := a.Observe(b.Context(), ids[k], inputs[k])
						if err != nil {
							b.Fatalf("a.Observe: %v, want no error", err)
						}
						if t := time.Since(start); i >= 8 {
							took = append(took, t)
						}
						sameOutcome(b, h, ids[k], inputs[k], out)
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
					b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
					b.ReportMetric(float64(n)*1e3/float64(took[len(took)/2].Nanoseconds()), "M/s")
					b.ReportMetric(0, "ns/op")
				})
			}
			h.check(b, a)
		})
	}
}

// sameOutcome steps the agents of h by their observations and compares their votes and decisions
// with those of out.
func sameOutcome(t testing.TB, h *Agents, ids []uint32, inputs []float32, out Outcome) {
	t.Helper()
	var few []uint32
	var fewInputs []float32
	var votes, decisions []byte
	features := len(inputs) / len(ids)
	for i, id := range ids {
		if int64(id) < h.n {
			few, fewInputs = append(few, id), append(fewInputs, inputs[i*features:][:features]...)
			votes, decisions = append(votes, out.Votes[i]), append(decisions, out.Decisions[i])
		}
	}
	if len(few) == 0 {
		return
	}
	want, err := h.Observe(t.Context(), few, fewInputs)
	if err != nil {
		t.Fatalf("h.Observe: %v, want no error", err)
	}
	if !slices.Equal(votes, want.Votes) || !slices.Equal(decisions, want.Decisions) {
		t.Fatal("other outcomes than those of the host device")
	}
}
