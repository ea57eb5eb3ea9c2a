package agents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkAgentsQuery is AgentStates of n random agents of 100 million, to votes and states in Go:
// median and 99th percentile. The states of two pages are compared with those of the host device.
// Run it with -benchtime 60x.
func BenchmarkAgentsQuery(b *testing.B) {
	d := openNamed(b, *deviceName)
	for _, c := range []struct {
		cell           string
		features, vote int
	}{{"leaky", 2, 2}, {"gru", 8, 5}} {
		all := scaled(d, 100_000_000)
		a := makeAgents(b, d, address(b, c.cell, nil, 64, c.features, c.vote), all, Options{})
		fillPages(b, a)
		h := sampled(b, a)
		for _, n := range []int{64, 1024, 65_536} {
			ids, _ := randomObservations(rand.New(rand.NewPCG(7, 8)), int(all), min(n, int(all)/2), c.features)
			b.Run(fmt.Sprint(c.cell, "/", n), func(b *testing.B) {
				took := make([]time.Duration, 0, b.N)
				for i := range b.N + 4 {
					start := time.Now()
					got, err := a.AgentStates(b.Context(), ids)
					if err != nil {
						b.Fatalf("a.AgentStates: %v, want no error", err)
					}
					if t := time.Since(start); i >= 4 {
						took = append(took, t)
						continue
					}
					for k, id := range ids {
						if int64(id) >= h.n {
							continue
						}
						want, err := h.AgentStates(b.Context(), []uint32{id})
						if err != nil {
							b.Fatalf("h.AgentStates: %v, want no error", err)
						}
						state := got.State[k*got.Width:][:got.Width]
						if got.Vote[k] != want.Vote[0] || !slices.Equal(state, want.State) {
							b.Fatalf("agent %d has another state on the host device", id)
						}
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
