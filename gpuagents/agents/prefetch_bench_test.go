package agents

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

var (
	prefetchParts = flag.Int("prefetch-parts", 4, "how many times more pages than frames the swarms of "+
		"BenchmarkPrefetch have")
	prefetchHost    = flag.Int("prefetch-host", 24, "frames in host memory of these")
	prefetchControl = flag.Bool("prefetch-control", false, "neither swarm of BenchmarkPrefetch fetches ahead: the "+
		"ratio is the ratio of two equal swarms")
	prefetchThink = flag.Duration("prefetch-think", 0, "how long the source of BenchmarkPrefetch waits before "+
		"each batch")
)

// prefetchAgents is a swarm as pagedAgents makes it, over a store in files. Its pages are in the
// store and not in memory.
func prefetchAgents(b *testing.B, prefetch bool) *Agents {
	b.Helper()
	d := openNamed(b, *opentest.Name)
	total := *pagedPages
	if total == 0 {
		total = 96
	}
	cell := address(b, "gru", nil, 64, 8, 5)
	layout, err := cell.Layout(*pagedBytes)
	testkit.NoError(b, "cell.Layout", err)
	budget := pages.NewBudget(int64(total / *prefetchParts)*int64(*pagedBytes),
		int64(*prefetchHost)*int64(*pagedBytes)).WithPrefetch(prefetch)
	a, err := NewShard(d, budget, cell, int64(total*layout.Slots*layout.Agents), 0, total*layout.Slots,
		Options{PageBytes: *pagedBytes})
	testkit.NoError(b, "newAgents", err)
	dir := b.TempDir()
	store, err := pagestore.Open(pagestore.Options{
		FS: vfs.OS{}, Tables: tierstest.Backend{FS: vfs.OS{}}, PageSize: *pagedBytes,
		Tiers: []pagestore.Tier{{Name: "disk", Dir: dir, Capacity: 16 << 30, SegmentBytes: 64 << 20}},
	})
	testkit.NoError(b, "pagestore.Open", err)
	b.Cleanup(func() {
		if err := a.Close(); err != nil {
			b.Errorf("a.Close: %v, want no error", err)
		}
		if err := store.Close(); err != nil {
			b.Errorf("store.Close: %v, want no error", err)
		}
	})
	ctx := context.Background()
	testkit.NoError(b, "memory.Open", a.memory.Open(ctx, store))
	fillPages(b, a)
	testkit.NoError(b, "memory.Checkpoint", a.memory.Checkpoint(ctx, nil))
	return a
}

// BenchmarkPrefetch is ticks and observations of two swarms over a store in files, with and without
// prefetching, in turn: batch by batch, and either first equally often. ratio is the median of the
// times without prefetching over the times with it.
func BenchmarkPrefetch(b *testing.B) {
	for _, load := range []string{"tick", "zipf", "sequential"} {
		b.Run(load, func(b *testing.B) { benchmarkPrefetch(b, load) })
	}
}

func benchmarkPrefetch(b *testing.B, load string) {
	swarms := [2]*Agents{prefetchAgents(b, false), prefetchAgents(b, !*prefetchControl)}
	ctx, r := context.Background(), rand.New(rand.NewPCG(9, 10))
	of := swarms[0]
	sums, sum := make([]float64, of.groups), 0.0
	for g := range sums {
		sum += 1 / float64(g+1)
		sums[g] = sum
	}
	agent := 0
	next := func() (ids []uint32, inputs []float32) {
		// Sequential observations address 4 pages a batch.
		stride := max(1, 4*of.layout.Slots*of.cell.Agents / *pagedBatch)
		for range *pagedBatch {
			if load == "zipf" {
				g := min(sort.SearchFloat64s(sums, r.Float64()*sum), of.groups-1)
				ids = append(ids, uint32(g*of.cell.Agents+r.IntN(of.cell.Agents)))
				continue
			}
			ids = append(ids, uint32(agent))
			agent = (agent + stride) % int(of.n)
		}
		inputs = make([]float32, len(ids)*of.cell.Features)
		for i := range inputs {
			inputs[i] = r.Float32()*2 - 1
		}
		return ids, inputs
	}
	step := func(k int, ids []uint32, inputs []float32) (votes []uint8, took time.Duration) {
		a := swarms[k]
		start := time.Now()
		if load == "tick" {
			if _, err := a.Tick(ctx, *pagedTicks); err != nil {
				b.Fatalf("a.Tick: %v, want no error", err)
			}
			return nil, time.Since(start)
		}
		o, err := a.Load(ids, inputs)
		if err == nil {
			_, err = a.Step(ctx, o)
		}
		if err == nil {
			votes, _, err = o.Outcome(ctx)
		}
		took = time.Since(start)
		if err == nil {
			err = o.Close()
		}
		testkit.NoError(b, "a.Load", err)
		return votes, took
	}
	var took [2][]float64
	var ratios []float64
	var before [2]pager.Stats
	for i := range b.N + *pagedWarm {
		if i == *pagedWarm {
			before = [2]pager.Stats{swarms[0].memory.Pager().Stats(), swarms[1].memory.Pager().Stats()}
		}
		ids, inputs := next()
		var votes [2][]uint8
		var times [2]time.Duration
		for n := range 2 {
			k := (n + i) % 2
			<-time.After(*prefetchThink) // the work between two batches
			votes[k], times[k] = step(k, ids, inputs)
		}
		if !slices.Equal(votes[0], votes[1]) {
			b.Fatal("a swarm that fetches ahead answers something else")
		}
		if i >= *pagedWarm {
			for k := range took {
				took[k] = append(took[k], times[k].Seconds()*1e3)
			}
			ratios = append(ratios, times[0].Seconds()/times[1].Seconds())
		}
	}
	for k, name := range []string{"off", "on"} {
		b.ReportMetric(median(took[k]), name+"-ms")
		after := swarms[k].memory.Pager().Stats()
		var misses, fetched, used, wasted uint64
		for tier := range after.Memory {
			misses += after.Memory[tier].Misses - before[k].Memory[tier].Misses
			fetched += after.Memory[tier].Prefetched - before[k].Memory[tier].Prefetched
			used += after.Memory[tier].Used - before[k].Memory[tier].Used
			wasted += after.Memory[tier].Wasted - before[k].Memory[tier].Wasted
		}
		b.ReportMetric(float64(misses)/float64(b.N), name+"-misses")
		if k == 1 {
			b.ReportMetric(float64(fetched)/float64(b.N), "fetched")
			b.ReportMetric(float64(used)/float64(b.N), "used")
			b.ReportMetric(float64(wasted)/float64(b.N), "wasted")
		}
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}
