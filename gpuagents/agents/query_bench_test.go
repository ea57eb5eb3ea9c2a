package agents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// reportTimes reports the median and the 99th percentile of times, and returns the median in us.
func reportTimes(b *testing.B, took []time.Duration) float64 {
	b.Helper()
	slices.Sort(took)
	us := func(i int) float64 { return float64(took[i].Nanoseconds()) / 1e3 }
	b.ReportMetric(us(len(took)/2), "p50-us")
	b.ReportMetric(us(len(took)*99/100), "p99-us")
	b.ReportMetric(0, "ns/op")
	return us(len(took) / 2)
}

// BenchmarkAgentsQuery is AgentStates of n random agents of 100 million, to votes and states in Go:
// median and 99th percentile. The states of two pages are compared with the host device. Run it
// with -benchtime 60x.
func BenchmarkAgentsQuery(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, c := range []struct {
		cell           string
		features, vote int
	}{{"leaky", 2, 2}, {"gru", 8, 5}} {
		all := scaled(d, 100_000_000)
		a := filledAgents(b, d, address(b, c.cell, nil, 64, c.features, c.vote), all)
		h := sampled(b, a)
		for _, n := range []int{64, 1024, 65_536} {
			ids, _ := randomObservations(rand.New(rand.NewPCG(7, 8)), int(all), min(n, int(all)/2), c.features)
			b.Run(fmt.Sprint(c.cell, "/", n), func(b *testing.B) {
				took := make([]time.Duration, 0, b.N)
				for i := range b.N + 4 {
					start := time.Now()
					got, err := a.AgentStates(b.Context(), ids)
					testkit.NoError(b, "a.AgentStates", err)
					if t := time.Since(start); i >= 4 {
						took = append(took, t)
						continue
					}
					for k, id := range ids {
						if int64(id) >= h.n {
							continue
						}
						want, err := h.AgentStates(b.Context(), []uint32{id})
						testkit.NoError(b, "h.AgentStates", err)
						state := got.State[k*got.Width:][:got.Width]
						if got.Vote[k] != want.Vote[0] || !slices.Equal(state, want.State) {
							b.Fatalf("agent %d has another state on the host device", id)
						}
					}
				}
				reportTimes(b, took)
			})
		}
	}
}
