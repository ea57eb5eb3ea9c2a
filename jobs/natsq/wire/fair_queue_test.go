package wire

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestFair: tenants that always have jobs get shares by weight, whatever the sizes of the batches:
// at no time is one ahead of another by more than a batch of each.
func TestFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(rt, "tenants")
		largest := rapid.IntRange(1, 256).Draw(rt, "batch")
		q := NewFairQueue()
		var ready []Source
		got := map[string]float64{}
		for i := range n {
			s := Source{Pool: jobs.PoolCPU, Kind: "k", Lane: jobs.Normal, Tenant: fmt.Sprint("t", i)}
			q.SetWeight(s.Tenant, float64(rapid.IntRange(1, 5).Draw(rt, "weight")))
			ready = append(ready, s)
		}
		for range 400 {
			s, ok := q.Next(ready)
			if !ok {
				rt.Fatal("nothing is ready")
			}
			k := rapid.IntRange(1, largest).Draw(rt, "jobs")
			q.Take(s, k)
			got[s.Tenant] += float64(k) / q.weights[s.Tenant]
			low, high := math.Inf(1), 0.0
			for _, r := range ready {
				low, high = min(low, got[r.Tenant]), max(high, got[r.Tenant])
			}
			if high-low > float64(largest) {
				rt.Fatalf("shares of %v with batches of up to %d", got, largest)
			}
		}
	})
}

// TestStarvation: whatever is ready, a lane that has jobs gets a turn within sixteen, and the most
// urgent one that has jobs at least six of every eight.
func TestStarvation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := NewFairQueue()
		lanes := rapid.SliceOfNDistinct(rapid.SampledFrom(jobs.Lanes()), 1, 3, rapid.ID).Draw(rt, "lanes")
		var ready []Source
		for _, l := range lanes {
			ready = append(ready, Source{Pool: jobs.PoolCPU, Kind: "k", Lane: l, Tenant: "t"})
		}
		last := map[jobs.Lane]int{}
		first := jobs.Low
		for _, l := range jobs.Lanes() {
			for _, have := range lanes {
				if l == have && first == jobs.Low {
					first = l
				}
			}
		}
		urgent := 0
		for turn := 1; turn <= 160; turn++ {
			s, _ := q.Next(ready)
			q.Take(s, 1)
			last[s.Lane] = turn
			if s.Lane == first {
				urgent++
			}
			for _, l := range lanes {
				if turn-last[l] >= 2*starvation {
					rt.Fatalf("of %v lane %s had no turn from %d to %d", lanes, l, last[l], turn)
				}
			}
		}
		if urgent < 160*6/8 {
			rt.Fatalf("of %v the most urgent had %d turns of 160", lanes, urgent)
		}
	})
}
