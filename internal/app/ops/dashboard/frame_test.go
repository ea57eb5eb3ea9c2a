package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
)

// largeState is a cluster of some agents with telemetry, each with ten shards of a swarm.
func largeState(agents int) *cluster.State {
	s := &cluster.State{Frame: 1, At: time.Now(), Numbers: map[string]float64{"agents": float64(agents)}}
	for i := range agents {
		a := cluster.Agent{Agent: jobs.Agent{Name: fmt.Sprintf("gpu-%d", i), Pool: jobs.PoolGPU, State: "serving"}}
		a.Telemetry = &jobs.Telemetry{At: s.At}
		for k := range 60 {
			a.Telemetry.Samples = append(a.Telemetry.Samples, jobs.Sample{
				Name:   fmt.Sprintf("exoswarm_swarm_metric_%d_total", k%40),
				Labels: map[string]string{"tier": fmt.Sprint(k % 3)},
				Value:  float64(i*k) * 1.25,
			})
		}
		s.Agents = append(s.Agents, a)
		w := cluster.Swarm{ID: fmt.Sprint("s", i), Name: fmt.Sprint("s", i), State: cluster.StateServed, Agents: 1e6}
		for k := range 10 {
			w.Shards = append(w.Shards, cluster.Shard{
				Shard: k, Holder: a.Name, State: cluster.StateServed, Entries: uint64(i * k), Answered: uint64(i * k),
			})
		}
		s.Swarms = append(s.Swarms, w)
	}
	return s
}

// BenchmarkFrame measures what a frame costs, once a second for all viewers.
func BenchmarkFrame(b *testing.B) {
	for _, agents := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(agents, " agents"), func(b *testing.B) {
			s := largeState(agents)
			for b.Loop() {
				f, err := newFrame(s, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(f.body)), "json-bytes")
				b.ReportMetric(float64(len(f.packed)), "wire-bytes")
			}
		})
	}
}
