package gpuprocess

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	benchDevice = flag.String("device", "host", "device of agents of this process and TestJobs: host, cuda:N, auto; "+
		"BenchmarkLoopback takes several with commas")
	benchTicked  = flag.Int("ticked", 20_000, "agents of the ticks of BenchmarkShard, a multiple of 50")
	benchEntries = flag.Int("entries", 0, "log entries of BenchmarkShard; 0: as many as each case has")
	benchLatency = flag.Duration("batch-latency", 0, "gpuagents.Options.BatchLatency of BenchmarkShard")
)

// BenchmarkShard serves a swarm whose log is full from the start, through a server that syncs every
// answer, from the answer to a tenth of its entries to that to the last. It prints the share of
// that time in which the device had work, as exoswarm_gpuagent_device_busy_seconds_total says.
func BenchmarkShard(b *testing.B) {
	agents := func(n, of int) func(r *rand.Rand) any {
		return func(r *rand.Rand) any {
			o := &batch.AgentObservations{Width: 4}
			for range n {
				o.Agent = append(o.Agent, r.Uint32N(uint32(of)))
				o.Features = append(o.Features, r.Float32(), r.Float32(), r.Float32(), r.Float32())
			}
			return o
		}
	}
	groups := func(n, of int) func(r *rand.Rand) any {
		return func(r *rand.Rand) any {
			o := &batch.Observations{Width: 1}
			for i := range n {
				o.Group, o.Row, o.Time, o.Read = append(o.Group, r.Uint32N(uint32(of))), append(o.Row, uint64(i)),
					append(o.Time, int64(i)), append(o.Read, 0)
				o.Timestamp, o.Value, o.Features = append(o.Timestamp, ""), append(o.Value, 0),
					append(o.Features, r.Float32())
			}
			return o
		}
	}
	ticks := func(n int) func(r *rand.Rand) any {
		return func(*rand.Rand) any { return swarms.Tick{Version: jobs.Version, Count: n} }
	}
	const million = "name: x\naddressed: agent\nagents: 1000000\nagents_per_group: 50\nfeatures: [a, b, c, d]\n" +
		"cell: {kind: gru, params: {hidden: 8}}\nvote: {candidates: [a, b, c], rule: majority}\ncheckpoint: " +
		"{interval: 1h, entries: 1000000}\n"
	const grouped = "name: x\nagents_per_group: 64\ncell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000000}\n"
	large := "name: x\naddressed: agent\nagents: " + fmt.Sprint(*benchTicked) + "\nagents_per_group: 50\ncell: " +
		"{kind: leaky}\nvote: {rule: majority}\ncheckpoint: {interval: 1h, entries: 1000000}\n"
	for _, c := range []struct {
		name, text string
		groups     int // of a swarm whose groups are addressed
		rows       int // an entry: observations, or ticks
		entries    int
		of         func(r *rand.Rand) any
	}{
		{"agents=10000", million, 0, 10_000, 200, agents(10_000, 1_000_000)},
		{"agents=100", million, 0, 100, 6000, agents(100, 1_000_000)},
		{"groups=1000", grouped, 4000, 1000, 1000, groups(1000, 4000)},
		{"groups=20", grouped, 4000, 20, 6000, groups(20, 4000)},
		{"ticks=1", large, 0, 1, 1000, ticks(1)},
		{"ticks=100", large, 0, 100, 10, ticks(100)},
	} {
		b.Run(c.name, func(b *testing.B) {
			entries := c.entries
			if *benchEntries > 0 {
				entries = *benchEntries
			}
			for range b.N {
				b.StopTimer()
				r, random := newRig(b), rand.New(rand.NewPCG(1, 1))
				for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
					if err := r.conn.Swarms.Log("x", 0, d).Create(b.Context()); err != nil {
						b.Fatalf("r.conn.Swarms.Log().Create: %v", err)
					}
				}
				for i := range entries {
					e := swarms.Entry{Kind: swarms.EntryObserve, Ref: uint64(i + 1)}
					var err error
					switch v := c.of(random).(type) {
					case interface{ Encode() ([]byte, error) }:
						e.Data, err = v.Encode()
					default:
						e.Kind = swarms.EntryTick
						e.Data, err = json.Marshal(v)
					}
					if err == nil {
						err = r.conn.Swarms.Log("x", 0, swarms.In).Append(b.Context(), uint64(i), e)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				spec, err := swarm.Parse("bench.yaml", []byte(c.text))
				if err != nil {
					b.Fatalf("swarm.Parse bench.yaml: %v", err)
				}
				data, err := json.Marshal(spec)
				if err != nil {
					b.Fatalf("json.Marshal: %v", err)
				}
				n := c.groups
				if spec.Topology().ByAgent {
					n = spec.Groups()
				}
				r.record(b, swarms.Swarm{Version: jobs.Version, ID: "x", Name: "x", Spec: data, Groups: n})
				dev, err := cuda.Open(b.Context(), *benchDevice,
					cuda.Options{
						Logger:   slog.New(slog.DiscardHandler),
						CacheDir: filepath.Join(os.TempDir(), "exoswarm-kernels"),
					})
				if err != nil {
					b.Fatalf("cuda.Open: %v", err)
				}
				reg := prometheus.NewRegistry()
				counts, err := gpuagents.NewMetrics(reg)
				if err != nil {
					b.Fatalf("gpuagents.NewMetrics: %v", err)
				}
				a, err := gpuagents.Start(gpuagents.Options{
					Name: "agent", Device: dev, Queue: r.conn.Swarms, LeaseTTL: time.Minute,
					Logger: slog.New(slog.NewTextHandler(r, nil)), Metrics: counts, BatchLatency: *benchLatency,
				})
				if err != nil {
					b.Fatalf("gpuagents.Start: %v", err)
				}
				answered := func(n int) (uint64, time.Time, float64) {
					for {
						last, err := r.conn.Swarms.Log("x", 0, swarms.Out).Last(b.Context())
						if err != nil {
							b.Fatalf("r.conn.Swarms.Log().Last: %v", err)
						}
						if last.Ref >= uint64(n) {
							if last.Kind == swarms.EntryRejected {
								b.Fatalf("%s", last.Data)
							}
							return last.Ref, time.Now(), values(b, reg)["exoswarm_gpuagent_device_busy_seconds_total"]
						}
						<-time.After(10 * time.Millisecond) // a busier look would take time from the agent
					}
				}
				first, began, busyBefore := answered(entries / 10)
				b.StartTimer()
				_, ended, busyAfter := answered(entries)
				b.StopTimer()
				took := ended.Sub(began).Seconds()
				b.ReportMetric(float64(uint64(entries)-first)*float64(c.rows)/took, "rows/s")
				b.ReportMetric(100*(busyAfter-busyBefore)/took, "%busy")
				a.Stop()
				if err := dev.Close(); err != nil {
					b.Fatalf("dev.Close: %v", err)
				}
				b.StartTimer()
			}
		})
	}
}
