package state

import (
	"context"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// BenchmarkPagedGroups is batches of observations of groups that are addressed with a frequency of
// 1/rank, with the most frequent groups next to each other: for a swarm of each cell with frames
// for a quarter of its pages, and for one with a frame for each page. It reports the same metrics
// as BenchmarkPagedZipf.
func BenchmarkPagedGroups(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, cell := range cells.Names() {
		b.Run(cell, func(b *testing.B) { pagedGroupsOf(b, d, cell) })
	}
}

func pagedGroupsOf(b *testing.B, d device.Device, cell string) {
	spec, err := swarm.Parse("bench.yaml", []byte("name: x\nagents_per_group: 64\ncell: {kind: "+cell+"}\n"))
	if err != nil {
		b.Fatalf("swarm.Parse: %v, want no error", err)
	}
	spec.PageSize = strictyaml.Size(*pagedBytes)
	bound, err := spec.Bind()
	if err != nil {
		b.Fatalf("spec.Bind: %v, want no error", err)
	}
	layout, err := bound.Layout(*pagedBytes)
	if err != nil {
		b.Fatalf("bound.Layout: %v, want no error", err)
	}
	total := *pagedPages
	if total == 0 {
		total = 12288
		if d.Properties().ComputeMajor == 0 {
			total = 96
		}
	}
	groups := total * layout.Slots
	sums, sum := make([]float64, groups), 0.0
	for g := range sums {
		sum += 1 / float64(g+1)
		sums[g] = sum
	}
	ctx, rates, last := context.Background(), [2]float64{}, [2]*batch.Decisions{}
	for k, parts := range []int{4, 1} {
		var budget *pages.Budget
		if parts > 1 {
			budget = pages.NewBudget(int64(total/parts)*int64(*pagedBytes), int64(total+1)*int64(*pagedBytes))
		}
		s, err := newGroupState(d, budget, spec, allOf(groups))
		if err != nil {
			b.Fatalf("newGroupState: %v, want no error", err)
		}
		r, clock := rand.New(rand.NewPCG(9, 10)), int64(0)
		observe := func(ids []uint32) (seconds float64) {
			o := &batch.Observations{Group: ids, Width: 1}
			for range ids {
				clock++
				o.Time, o.Features = append(o.Time, clock), append(o.Features, r.Float32())
			}
			start := time.Now()
			if last[k], _, err = s.observe(ctx, o); err != nil {
				b.Fatalf("s.observe: %v, want no error", err)
			}
			return time.Since(start).Seconds()
		}
		for first := 0; first < total; first += *pagedBatch { // every page is there
			var ids []uint32
			for page := first; page < min(total, first+*pagedBatch); page++ {
				ids = append(ids, uint32(page*layout.Slots))
			}
			observe(ids)
		}
		var took, there []float64
		var before pager.Stats
		for i := range b.N + *pagedWarm {
			ids, on := make([]uint32, *pagedBatch), 0
			for n := range ids {
				g := min(sort.SearchFloat64s(sums, r.Float64()*sum), groups-1)
				if *pagedFar { // the frames were filled from the first page on
					g = (g + groups/2) % groups
				}
				ids[n] = uint32(g)
			}
			if i == *pagedWarm {
				before = s.memory.Pager().Stats()
			}
			if t := observe(ids); i >= *pagedWarm {
				took = append(took, t)
			}
			for _, g := range ids {
				if s.memory.OnDevice()[int(g)/layout.Slots] {
					on++
				}
			}
			there = append(there, float64(on)/float64(len(ids)))
		}
		rates[k] = float64(*pagedBatch) / median(took)
		if parts > 1 {
			after := s.memory.Pager().Stats()
			up, down := after.Memory[onDevice].In-before.Memory[onDevice].In,
				after.Memory[onDevice].Out-before.Memory[onDevice].Out
			b.ReportMetric(float64(up+down)*float64(*pagedBytes)/1e6/float64(b.N), "moved-MB")
			b.ReportMetric(there[0], "first-on-device")
			b.ReportMetric(there[len(there)-1], "last-on-device")
		}
		if err := s.Close(); err != nil {
			b.Fatalf("s.Close: %v, want no error", err)
		}
	}
	if !slices.Equal(last[0].Score, last[1].Score) || !slices.Equal(last[0].Decision, last[1].Decision) ||
		!slices.Equal(last[0].Counts, last[1].Counts) {
		b.Fatal("a swarm with few frames answers something else")
	}
	b.ReportMetric(rates[0], "obs/s")
	b.ReportMetric(rates[1], "resident-obs/s")
	b.ReportMetric(rates[0]/rates[1], "of-resident")
	b.ReportMetric(0, "ns/op")
}
