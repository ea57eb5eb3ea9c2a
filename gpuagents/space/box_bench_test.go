package space

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

var (
	benchSide = flag.Float64("side", 0, "side of the boxes of the benchmarks; 0: 100, and 20 on the host device")
	benchRuns = flag.Int("runs", 200, "ticks that a benchmark measures")
)

// BenchmarkCircles measures ticks of the benchmark of circles that the authors of FLAME GPU 2
// publish: a radius of 2 and a density of 1 in three dimensions, 1,000,000 agents in a box of 100 x
// 100 x 100, which is not periodic, and 200 ticks from random places on
// (github.com/FLAMEGPU/FLAMEGPU2-circles-benchmark). Further cases have two to four times the
// density in a smaller box.
//
// Before that, all bits of the state after ticks of a smaller box are compared with the host
// device. Each tick is measured on the device, with its sort. tick-us is the mean of all ticks, as
// in their benchmark.
func BenchmarkCircles(b *testing.B) {
	benchmark(b, cells.CirclesName, params{"repulsion": 0.025}, 0)
}

// BenchmarkBoids is BenchmarkCircles for boids. In the periodic case their flocks cross the walls.
func BenchmarkBoids(b *testing.B) { benchmark(b, cells.BoidsName, nil, 0) }

// BenchmarkBoidsNearest is BenchmarkBoids for boids that hear the nearest others alone.
func BenchmarkBoidsNearest(b *testing.B) {
	for _, nearest := range []int{7, 16, spaceset.MostNearest} {
		b.Run(fmt.Sprintf("nearest=%d", nearest), func(b *testing.B) { benchmark(b, cells.BoidsName, nil, nearest) })
	}
}

func benchmark(b *testing.B, cell string, p params, nearest int) {
	d := openDevice(b)
	side, onHost := *benchSide, d.Properties().ComputeMajor == 0
	if side == 0 {
		if side = 100; onHost {
			side = 20
		}
	}
	if !onHost {
		compare(b, d, cell, p, nearest)
	}
	for _, c := range []struct {
		side, density float64
		periodic      bool
	}{{side, 1, false}, {side, 1, true}, {side * 0.79, 2, false}, {side * 0.63, 4, false}} {
		agents := int64(c.side*c.side*c.side*c.density) / 1000 * 1000
		b.Run(fmt.Sprintf("agents=%d/density=%v/periodic=%v", agents, c.density, c.periodic), func(b *testing.B) {
			x := open(b, d, cellOf(b, cell, 3, 8, p), Options{
				Agents: agents, Sides: []float64{c.side, c.side, c.side}, Radius: 2, Nearest: nearest,
				Periodic: c.periodic, Seed: 1,
			})
			benchTicks(b, x)
		})
	}
}

// benchTicks measures ticks of a box from first places on: whole ones, and their parts.
func benchTicks(b *testing.B, x *Box) {
	b.Helper()
	var at [4]device.Event
	for i := range at {
		var err error
		at[i], err = x.Device().NewEvent()
		ok(b, err)
		defer at[i].Close()
	}
	ok(b, x.ready(b.Context()))
	ok(b, x.counts.Fill(0, x.counts.Size(), 0))
	ok(b, x.tally.Fill(0, x.tally.Size(), 0))
	since := func(from, to int) time.Duration {
		took, err := at[to].Since(at[from])
		ok(b, err)
		return took
	}
	ok(b, x.load())
	ok(b, x.launch(false)) // the kernels are loaded
	ok(b, x.load())
	var ticks, sorts []time.Duration
	var all time.Duration
	for range *benchRuns {
		ok(b, x.Stream.Record(at[0]))
		ok(b, x.sort(x.Len()))
		ok(b, x.Stream.Record(at[1]))
		ok(b, x.step(false))
		ok(b, x.Stream.Record(at[2]))
		ok(b, x.Stream.Sync(b.Context()))
		ticks, sorts = append(ticks, since(0, 2)), append(sorts, since(0, 1))
		all += since(0, 2)
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	first, last := us(ticks[0]), us(ticks[len(ticks)-1])
	slices.Sort(sorts)
	// A run of ticks as a swarm makes it: one entry, with what it reads from the pages and writes
	// there.
	began := time.Now()
	_, err := x.Tick(b.Context(), b.Context(), *benchRuns, 64)
	ok(b, err)
	whole := time.Since(began) / time.Duration(*benchRuns)
	mean := us(all) / float64(*benchRuns)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mean, "tick-us")
	b.ReportMetric(us(sorts[len(sorts)/2]), "sort-us")
	b.ReportMetric(first, "first-us")
	b.ReportMetric(last, "last-us")
	b.ReportMetric(us(whole), "entry-us")
	b.ReportMetric(float64(x.Len())/mean/1e3, "agent-steps/ns")
}

// compare makes ticks of a smaller box on the device and on the host device, and compares all
// state.
func compare(b *testing.B, d device.Device, cell string, p params, nearest int) {
	b.Helper()
	host, err := cuda.Open(b.Context(), "host", cuda.Options{})
	ok(b, err)
	defer host.Close()
	for _, dims := range []int{2, 3} {
		o := Options{
			Agents: 60_000, Sides: []float64{40, 39, 41}[:dims], Radius: 2, Nearest: nearest, Periodic: dims == 3,
			Seed: 1 << 40,
		}
		of := cellOf(b, cell, dims, 8, p)
		here, there := open(b, d, of, o), open(b, host, of, o)
		for _, count := range []int{1, 4} {
			if got, want := tick(b, here, count), tick(b, there, count); !slices.Equal(got, want) {
				b.Fatalf("%d agents in each state, want %d", got, want)
			}
		}
		content, other := make([]byte, here.Layout().PageBytes), make([]byte, here.Layout().PageBytes)
		for page := range here.Memory().Count() {
			ok(b, here.Memory().Read(b.Context(), uint64(page), content))
			ok(b, there.Memory().Read(b.Context(), uint64(page), other))
			if !bytes.Equal(content, other) {
				b.Fatalf("%d dimensions: page %d differs from the host device", dims, page)
			}
		}
		ok(b, there.Close())
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v, want no error", err)
	}
}
