package agents

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/gpuframes"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

var (
	pagedPages = flag.Int("paged-pages", 0, "pages of the swarms of the benchmarks of paging; 0: 12,288, and 96 on "+
		"the host device")
	pagedBytes = flag.Int("paged-bytes", 2<<20, "the size of those pages")
	pagedBatch = flag.Int("paged-batch", 65536, "observations of a batch of BenchmarkPagedZipf and "+
		"BenchmarkPagedGroups")
	pagedWarm = flag.Int("paged-warm", 10, "batches of BenchmarkPagedZipf and BenchmarkPagedGroups before those "+
		"that are measured, in which pages change places")
	pagedFar = flag.Bool("paged-far", false, "the pages that BenchmarkPagedZipf observes most are in host memory "+
		"at first")
	pagedParts = flag.Int("paged-parts", 3, "pages of BenchmarkPagedTick for each frame")
	pagedTicks = flag.Int("paged-ticks", 1, "ticks of an entry of BenchmarkPagedTick, which a page makes one after "+
		"the other while it is on the device")
)

// pagedAgents is a swarm of gru in a random state. It has frames for one in parts of its pages.
func pagedAgents(b *testing.B, d device.Device, parts int) *Agents {
	b.Helper()
	pages := *pagedPages
	if pages == 0 {
		pages = 12288
		if d.Properties().ComputeMajor == 0 {
			pages = 96
		}
	}
	cell := address(b, "gru", nil, 64, 8, 5)
	layout, err := cell.Layout(*pagedBytes)
	testkit.NoError(b, "cell.Layout", err)
	o := Options{PageBytes: *pagedBytes}
	if parts > 1 {
		o.PageMemory, o.HostPageMemory = int64(pages/parts)*int64(*pagedBytes), int64(pages+1)*int64(*pagedBytes)
	}
	a, err := New(d, cell, int64(pages*layout.Slots*layout.Agents), o)
	testkit.NoError(b, "New", err)
	fillPages(b, a)
	return a
}

// BenchmarkPagedTick is ticks of a swarm with frames for a part of its pages. GB/s count the pages
// that come in; as many go out. The raw rate is of copies of the same bytes in both directions at
// once: the ratio of both is the result. swarm is all pages over the time of a tick. Pages that
// stay on the device need not move.
func BenchmarkPagedTick(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	a := pagedAgents(b, d, *pagedParts)
	defer a.Close()
	ctx := context.Background()
	tick := func() {
		if _, err := a.Tick(ctx, *pagedTicks); err != nil {
			b.Fatalf("a.Tick: %v, want no error", err)
		}
	}
	for range 3 { // forth, back and forth
		tick()
	}
	in := func() uint64 { return a.memory.Pager().Stats().Memory[onDevice].In }
	if *pagedParts == 1 {
		in = func() uint64 { return 0 }
	}
	var took, rates, swarm, raw []float64
	for range b.N {
		before, start := in(), time.Now()
		tick()
		seconds := time.Since(start).Seconds()
		took = append(took, 1e3*seconds)
		if *pagedParts == 1 {
			continue
		}
		moved := float64(in()-before) * float64(a.layout.PageBytes) / 1e9
		rates = append(rates, moved/seconds)
		swarm = append(swarm, float64(a.pages)*float64(a.layout.PageBytes)/1e9/seconds)
		raw = append(raw, rawCopies(b, d, a.layout.PageBytes, int(in()-before)))
	}
	b.ReportMetric(median(took), "ms")
	if *pagedParts == 1 { // no page moves
		b.ReportMetric(0, "ns/op")
		return
	}
	b.ReportMetric(median(rates), "GB/s-each-way")
	b.ReportMetric(median(raw), "raw-GB/s-each-way")
	b.ReportMetric(median(rates)/median(raw), "of-raw")
	b.ReportMetric(median(swarm), "swarm-GB/s")
	b.ReportMetric(0, "ns/op")
}

// rawCopies copies a number of pages to the device and the same number from it, at once, and
// returns GB/s in each direction.
func rawCopies(b *testing.B, d device.Device, pageBytes, pages int) float64 {
	b.Helper()
	const frames = 128
	ok := func(err error) {
		if err != nil {
			b.Fatalf("copy pages: %v", err)
		}
	}
	o := gpuframes.Options{Device: d, Count: frames, PageSize: pageBytes}
	on, err := gpuframes.NewDevice(o)
	ok(err)
	defer on.Close()
	in, err := gpuframes.NewPinned(o)
	ok(err)
	defer in.Close()
	up, down := make([]tiers.Move, frames/2), make([]tiers.Move, frames/2)
	for i := range up {
		up[i], down[i] = tiers.Move{From: i, To: i}, tiers.Move{From: frames/2 + i, To: frames/2 + i}
	}
	ctx, start, done := context.Background(), time.Now(), make(chan error, 1)
	go func() {
		var err error
		for left := pages; left > 0 && err == nil; left -= frames / 2 {
			err = on.CopyOut(ctx, in, down[:min(left, frames/2)], tiers.Background)
		}
		done <- err
	}()
	for left := pages; left > 0; left -= frames / 2 {
		ok(on.CopyIn(ctx, in, up[:min(left, frames/2)], tiers.Background))
	}
	ok(<-done)
	return float64(pages) * float64(pageBytes) / 1e9 / time.Since(start).Seconds()
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// observedThere is the part of observations whose page was on the device when they were made.
func observedThere(a *Agents, ids []uint32) float64 {
	n := 0
	for _, id := range ids {
		if a.memory.OnDevice()[a.page(id)] {
			n++
		}
	}
	return float64(n) / float64(len(ids))
}

// stepRepeats times the launches of observations but for the first one, of a swarm with a frame for
// each page, once more.
func stepRepeats(b *testing.B, a *Agents, o *Observations) float64 {
	b.Helper()
	again := *o
	again.launches = o.launches[1:]
	start := time.Now()
	if _, err := a.Step(context.Background(), &again); err != nil {
		b.Fatalf("a.Step: %v, want no error", err)
	}
	return time.Since(start).Seconds()
}

// BenchmarkPagedZipf is batches of observations of random agents. Groups are addressed with a
// frequency of 1/rank, and frequent groups are adjacent. One swarm has frames for a quarter of its
// pages, the other for all. on-device is the part of the observations whose page was on the device,
// in the first and the last tenth of the batches. gpu-pages and cpu-pages are the pages that a
// batch found in either memory, and moved-MB what was copied up and down. For the resident swarm it
// reports the launches of a batch, the part of the time that loading took, and the part of the
// launches after the first, which repeated agents need.
func BenchmarkPagedZipf(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	var rates [2]float64
	var last [2]Outcome
	for k, parts := range []int{4, 1} {
		a := pagedAgents(b, d, parts)
		sums := make([]float64, a.groups)
		sum := 0.0
		for g := range sums {
			sum += 1 / float64(g+1)
			sums[g] = sum
		}
		r := rand.New(rand.NewPCG(9, 10))
		next := func() (ids []uint32, inputs []float32) {
			for range *pagedBatch {
				g := min(sort.SearchFloat64s(sums, r.Float64()*sum), a.groups-1)
				if *pagedFar { // the frames were filled from the first page on
					g = (g + a.groups/2) % a.groups
				}
				ids = append(ids, uint32(g*a.cell.Agents+r.IntN(a.cell.Agents)))
			}
			inputs = make([]float32, len(ids)*a.cell.Features)
			for i := range inputs {
				inputs[i] = r.Float32()*2 - 1
			}
			return ids, inputs
		}
		var took, load, repeats, launches, there []float64
		ctx, batches := context.Background(), b.N+*pagedWarm
		var before pager.Stats
		for i := range batches {
			ids, inputs := next()
			if i == *pagedWarm {
				before = a.memory.Pager().Stats()
			}
			start := time.Now()
			o, err := a.Load(ids, inputs)
			loaded := time.Since(start)
			if err == nil {
				last[k].Report, err = a.Step(ctx, o)
			}
			if err == nil {
				last[k].Votes, last[k].Decisions, err = o.Outcome(ctx)
			}
			end := time.Since(start)
			testkit.NoError(b, "a.Load", err)
			there = append(there, observedThere(a, ids))
			if i >= *pagedWarm {
				took, load = append(took, end.Seconds()), append(load, loaded.Seconds()/end.Seconds())
				launches = append(launches, float64(len(o.launches)))
			}
			for range 5 {
				if parts == 1 && i == batches-1 && len(o.launches) > 1 { // the last of them: they step agents again
					repeats = append(repeats, stepRepeats(b, a, o))
				}
			}
			testkit.NoError(b, "o.Close", o.Close())
		}
		rates[k] = float64(*pagedBatch) / median(took)
		if parts > 1 {
			part := max(1, batches/10)
			b.ReportMetric(median(there[:part]), "first-on-device")
			b.ReportMetric(median(there[batches-part:]), "last-on-device")
			after := a.memory.Pager().Stats()
			for tier, name := range []string{"gpu-pages", "cpu-pages"} {
				b.ReportMetric(float64(after.Memory[tier].Hits-before.Memory[tier].Hits)/float64(b.N), name)
			}
			up, down := after.Memory[onDevice].In-before.Memory[onDevice].In,
				after.Memory[onDevice].Out-before.Memory[onDevice].Out
			b.ReportMetric(float64(up+down)*float64(a.layout.PageBytes)/1e6/float64(b.N), "moved-MB")
		} else {
			b.ReportMetric(median(launches), "launches")
			b.ReportMetric(median(load), "load-share")
			if len(repeats) > 0 {
				b.ReportMetric(median(repeats)/median(took), "repeats-share")
			}
		}
		testkit.NoError(b, "a.Close", a.Close())
	}
	if !slices.Equal(last[0].Votes, last[1].Votes) || !slices.Equal(last[0].Decisions, last[1].Decisions) ||
		!slices.Equal(last[0].Tally, last[1].Tally) {
		b.Fatal("a swarm with few frames answers something else")
	}
	b.ReportMetric(rates[0], "obs/s")
	b.ReportMetric(rates[1], "resident-obs/s")
	b.ReportMetric(rates[0]/rates[1], "of-resident")
	b.ReportMetric(0, "ns/op")
}
