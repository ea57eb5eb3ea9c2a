package agents

import (
	"context"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var benchAgents = flag.Int64("fuse-agents", 0, "agents of the benchmarks of votes and fusions; 0: as many as their "+
	"names say, scaled")

// BenchmarkAgentsFuse is a vote and fusions of all agents, from the Go call to nodes in host
// memory: median and slowest, and GB/s of the bytes of embeddings and votes. Groups are of 64, and
// by group there are up to 1,000 nodes. The nodes are compared with a fusion in windows. Run it
// with -benchtime 30x.
func BenchmarkAgentsFuse(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	ctx := context.Background()
	for _, c := range []struct {
		name, cell     string
		values         map[string]float64
		features, vote int
		agents, bytes  int64
	}{
		{"leaky/100M", "leaky", nil, 2, 2, 100_000_000, 5},
		{"gru/h8/f32/10M", "gru", nil, 8, 5, 10_000_000, 33},
		{"gru/h8/bf16/10M", "gru", map[string]float64{"bf16": 1}, 8, 5, 10_000_000, 17},
		{"gru/h32/f32/4M", "gru", map[string]float64{"hidden": 32}, 32, 5, 4_000_000, 129},
	} {
		n := scaled(d, c.agents)
		if *benchAgents > 0 {
			n = max(64, *benchAgents/64*64)
		}
		b.Run(c.name, func(b *testing.B) {
			a := filledAgents(b, d, address(b, c.cell, c.values, 64, c.features, c.vote), n)
			if _, err := a.Tick(ctx, 1); err != nil { // so that all vote
				b.Fatalf("a.Tick: %v, want no error", err)
			}
			timed := func(b *testing.B, bytes int64, call func() error) {
				wall := make([]time.Duration, 0, b.N)
				for i := range b.N + 2 {
					start := time.Now()
					testkit.NoError(b, "call", call())
					if took := time.Since(start); i >= 2 {
						wall = append(wall, took)
					}
				}
				slices.Sort(wall)
				us := float64(wall[len(wall)/2].Nanoseconds()) / 1e3
				b.ReportMetric(us, "wall-us")
				b.ReportMetric(float64(wall[len(wall)-1].Nanoseconds())/1e3, "worst-us")
				if bytes > 0 {
					b.ReportMetric(float64(bytes)/us/1e3, "GB/s")
				}
				b.ReportMetric(0, "ns/op")
			}
			b.Run("vote", func(b *testing.B) {
				round := uint64(0)
				timed(b, 0, func() error {
					round++
					_, err := a.Vote(ctx, consensus.Rule{Kind: consensus.Majority}, round, true)
					return err
				})
			})
			for _, f := range []swarms.Fuse{
				{By: swarms.ByAll},
				{By: swarms.ByGroup, Nodes: min(1000, a.groups)},
				{By: swarms.ByVote},
			} {
				b.Run(fmt.Sprint("fuse-by-", f.By), func(b *testing.B) {
					var nodes fusion.Nodes
					timed(b, n*c.bytes, func() (err error) {
						nodes, err = a.Fuse(ctx, f.By, f.Nodes)
						return err
					})
					want, _, err := a.FuseParts(ctx, &gpubatch.Splitter{}, f, FuseWindow-1)
					testkit.NoError(b, "a.FuseParts", err)
					if !reflect.DeepEqual(nodes, want) {
						b.Fatal("the nodes differ from the nodes of windows")
					}
				})
			}
		})
	}
}
