package agents

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// BenchmarkAgentsKnowledge is a tick of 10M agents that hear nothing, of agents that hear the decision of
// their group, and of agents that hear its node, of few large groups and of many small ones. The three
// take turns; the times are medians until the result is in host memory.
func BenchmarkAgentsKnowledge(b *testing.B) {
	d := openNamed(b, *deviceName)
	for _, group := range []int{4096, 256, 10} {
		n := scaled(d, 10_000_000) / int64(group) * int64(group)
		b.Run(fmt.Sprintf("gru/h8/f32/%d", n/int64(group)), func(b *testing.B) {
			deaf := address(b, "gru", nil, group, 2, 5)
			wide, err := deaf.Hearing(4)
			if err != nil {
				b.Fatalf("Hearing: %v", err)
			}
			telling := func(t cells.Told) *cells.Addressed {
				cell, err := wide.Telling(t)
				if err != nil {
					b.Fatalf("Telling: %v", err)
				}
				return cell
			}
			ctx := b.Context()
			var swarms [3]*Agents
			for i, cell := range []*cells.Addressed{
				deaf, telling(cells.Told{Decision: 0, Node: -1}),
				telling(cells.Told{Decision: -1, Node: 0, Width: 4, Merge: kernels.AgentMergeEMA, Rate: 0.1}),
			} {
				if swarms[i], err = New(d, cell, n, Options{}); err != nil {
					b.Fatalf("New: %v", err)
				}
				defer swarms[i].Close()
				fillPages(b, swarms[i])
			}
			twin := sampled(b, swarms[2])
			var took [3][]time.Duration
			for i := range b.N + 3 {
				for k, a := range swarms {
					began := time.Now()
					if _, err := a.Tick(ctx, 1); err != nil {
						b.Fatalf("Tick: %v", err)
					}
					if i >= 3 {
						took[k] = append(took[k], time.Since(began))
					}
				}
				if _, err := twin.Tick(ctx, 1); err != nil {
					b.Fatalf("Tick of the twin: %v", err)
				}
			}
			twin.check(b, swarms[2])
			for k, name := range []string{"deaf-us", "group-us", "node-us"} {
				slices.Sort(took[k])
				b.ReportMetric(float64(took[k][b.N/2].Nanoseconds())/1e3, name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
