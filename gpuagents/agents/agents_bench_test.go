package agents

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	benchGrid  = flag.Int("grid", 0, "blocks of a launch; 0: what the package chooses")
	benchBlock = flag.Int("block", 0, "threads of a block; 0: what the package chooses")
	benchTicks = flag.Int("ticks", 1, "ticks of a launch of BenchmarkAgentsTick, which prints the times and bytes "+
		"of all of them together")
	benchScale = flag.Int("scale", 0, "agents of a benchmark are divided by it; 0: 1, and 1000 on the host device")
)

func openNamed(t testing.TB, name string) device.Device {
	t.Helper()
	return opentest.Open(t, name, cuda.Options{})
}

func address(t testing.TB, cell string, values map[string]float64, agents, features, candidates int) *cells.Addressed {
	t.Helper()
	c, err := cells.Address(cell, values, agents, features, candidates, cells.Voting{Rule: kernels.RuleMajority})
	testkit.NoError(t, "cells.Address", err)
	return c
}

func makeAgents(t testing.TB, d device.Device, cell *cells.Addressed, n int64, o Options) *Agents {
	t.Helper()
	a, err := New(d, cell, n, o)
	testkit.NoError(t, "New", err)
	testkit.Close(t, a)
	return a
}

// filledAgents makes agents in a random state, with launches of the shape that the command line
// sets.
func filledAgents(b *testing.B, d device.Device, cell *cells.Addressed, n int64) *Agents {
	b.Helper()
	a := makeAgents(b, d, cell, n, Options{Geometry: device.Geometry{Grid: *benchGrid, Block: *benchBlock}})
	fillPages(b, a)
	return a
}

// fillPages gives all agents a random state, the same in each page.
func fillPages(t testing.TB, a *Agents) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	page := make([]byte, a.layout.PageBytes)
	for v, of := range a.layout.Vars {
		if of.Group || of.Elem == kernels.U8 {
			continue
		}
		to := page[a.layout.Offsets[v]:][:a.layout.Slots*a.layout.Agents*of.Width*of.Elem.Bytes()]
		if of.Elem == kernels.BF16 {
			for i, half := 0, device.Of[uint16](to); i < len(half); i++ {
				half[i] = device.ToBF16(r.Float32()*2 - 1)
			}
			continue
		}
		for i, f := 0, device.Of[float32](to); i < len(f); i++ {
			f[i] = r.Float32()*2 - 1
		}
	}
	for p := range a.pages {
		testkit.NoError(t, "memory.Write", a.memory.Write(t.Context(), uint64(p), page))
	}
}

// sampled is the first agents of a, two pages of them, in the state they are in, on the host
// device.
func sampled(t testing.TB, a *Agents) *Agents {
	t.Helper()
	n := min(int64(2*a.layout.Slots*a.layout.Agents), a.n)
	h := makeAgents(t, openNamed(t, "host"), a.cell, n, Options{PageBytes: a.layout.PageBytes})
	pages := pagesOf(t, a, h.pages)
	for p := range h.pages {
		if err := h.memory.Write(t.Context(), uint64(p),
			pages[p*h.layout.PageBytes:][:h.layout.PageBytes]); err != nil {
			t.Fatalf("memory.Write: %v, want no error", err)
		}
	}
	return h
}

func pagesOf(t testing.TB, a *Agents, n int) []byte {
	t.Helper()
	testkit.NoError(t, "stream.Sync", a.stream.Sync(t.Context()))
	data := make([]byte, n*a.layout.PageBytes)
	for p := range n {
		page := data[p*a.layout.PageBytes:][:a.layout.PageBytes]
		testkit.NoError(t, "memory.Read", a.memory.Read(t.Context(), uint64(p), page))
	}
	return data
}

// check compares a sample with the agents that it was taken of.
func (a *Agents) check(t testing.TB, other *Agents) {
	t.Helper()
	pages := min(a.pages, other.pages)
	if !bytes.Equal(pagesOf(t, a, pages), pagesOf(t, other, pages)) {
		t.Fatal("agents are not in the state that the host device computes")
	}
}

func scaled(d device.Device, n int64) int64 {
	scale := int64(*benchScale)
	if scale == 0 {
		scale = 1
		if d.Properties().ComputeMajor == 0 {
			scale = 1000
		}
	}
	return max(n/scale/64, 1) * 64
}

// measured runs launch b.N times, after a warm-up, and reports the wall time until its result is in
// host memory, the time on the device by events, and the rate of size bytes in that time, in GB/s.
func measured(b *testing.B, a *Agents, size int64, wait func(i int), launch func(i int) error) {
	b.Helper()
	ctx := context.Background()
	ok := func(err error) {
		if err != nil {
			b.Fatalf("%v, want no error", err)
		}
	}
	const warmup = 3
	var wall, onDevice []time.Duration
	for i := range b.N + warmup {
		start := time.Now()
		wait(i)
		if i >= warmup {
			wall = append(wall, time.Since(start))
		}
	}
	from, err := a.dev.NewEvent()
	ok(err)
	defer from.Close()
	to, err := a.dev.NewEvent()
	ok(err)
	defer to.Close()
	for i := range b.N {
		ok(a.stream.Record(from))
		ok(launch(i))
		ok(a.stream.Record(to))
		ok(a.stream.Sync(ctx))
		d, err := to.Since(from)
		ok(err)
		onDevice = append(onDevice, d)
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds()) / 1e3
	}
	us := median(onDevice)
	b.ReportMetric(median(wall), "wall-us")
	b.ReportMetric(us, "device-us")
	b.ReportMetric(float64(size)/us/1e3, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAgentsTick is a dense tick, including votes, decisions and the tally. Bytes are counted
// as in torch_bench.py: state read and written once, and the vote for leaky only. Run it with
// -benchtime 30x.
func BenchmarkAgentsTick(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, c := range []struct {
		name           string
		cell           string
		values         map[string]float64
		features, vote int
		agents, bytes  int64
	}{
		{"leaky/100M", "leaky", nil, 2, 2, 100_000_000, 25},
		{"gru/h8/f32/10M", "gru", nil, 8, 5, 10_000_000, 96},
		{"gru/h8/bf16/10M", "gru", map[string]float64{"bf16": 1}, 8, 5, 10_000_000, 48},
		{"gru/h16/f32/10M", "gru", map[string]float64{"hidden": 16}, 16, 5, 10_000_000, 192},
		{"gru/h16/bf16/10M", "gru", map[string]float64{"hidden": 16, "bf16": 1}, 16, 5, 10_000_000, 96},
		{"gru/h32/f32/4M", "gru", map[string]float64{"hidden": 32}, 32, 5, 4_000_000, 384},
		{"gru/h32/bf16/4M", "gru", map[string]float64{"hidden": 32, "bf16": 1}, 32, 5, 4_000_000, 192},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := scaled(d, c.agents)
			a := filledAgents(b, d, address(b, c.cell, c.values, 64, c.features, c.vote), n)
			h := sampled(b, a)
			ctx := context.Background()
			measured(b, a, n*c.bytes, func(int) {
				if _, err := a.Tick(ctx, *benchTicks); err != nil {
					b.Fatalf("a.Tick: %v, want no error", err)
				}
			}, func(int) error {
				return a.launchTick(ctx, a.memory.All()[0].Pages, *benchTicks, kernels.AgentTickPublish, false)
			})
			if _, err := h.Tick(ctx, (2*b.N+3)**benchTicks); err != nil {
				b.Fatalf("h.Tick: %v, want no error", err)
			}
			h.check(b, a)
		})
	}
}

// BenchmarkAgentsObserve steps 1M random agents of 100M, with votes and the decisions of their
// groups of 64; inputs and ids are on the device. Bytes are counted as in torch_bench.py.
func BenchmarkAgentsObserve(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, c := range []struct {
		name, cell     string
		values         map[string]float64
		features, vote int
		bytes          int64
	}{
		{"gru/h8/f32/1M-of-100M", "gru", nil, 8, 5, 8 + 8*4*3 + 1},
		{"gru/h8/bf16/1M-of-100M", "gru", map[string]float64{"bf16": 1}, 8, 5, 8 + 8*4 + 8*2*2 + 1},
		{"leaky/1M-of-100M", "leaky", nil, 2, 2, 8 + 8 + 16 + 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			all, n := scaled(d, 100_000_000), scaled(d, 1_000_000)
			a := filledAgents(b, d, address(b, c.cell, c.values, 64, c.features, c.vote), all)
			h := sampled(b, a)
			r := rand.New(rand.NewPCG(7, 8))
			const batches = 6
			var on [batches]*Observations
			var onHost [batches]*Observations
			var err error
			for i := range on {
				ids, inputs := randomObservations(r, int(all), int(n), c.features)
				if on[i], err = a.Load(ids, inputs); err != nil {
					b.Fatalf("a.Load: %v, want no error", err)
				}
				defer on[i].Close()
				var few []uint32
				var fewInputs []float32
				for k, id := range ids {
					if int64(id) < h.n {
						few, fewInputs = append(few, id), append(fewInputs, inputs[k*c.features:][:c.features]...)
					}
				}
				if onHost[i], err = h.Load(few, fewInputs); err != nil {
					b.Fatalf("h.Load: %v, want no error", err)
				}
				defer onHost[i].Close()
			}
			ctx := context.Background()
			steps := make([]int, 0, 2*b.N+3)
			measured(b, a, n*c.bytes, func(i int) {
				steps = append(steps, i%batches)
				if _, err := a.Step(ctx, on[i%batches]); err != nil {
					b.Fatalf("a.Step: %v, want no error", err)
				}
			}, func(i int) error {
				steps = append(steps, i%batches)
				return a.launchStep(ctx, on[i%batches], on[i%batches].launches[0], 0)
			})
			for _, i := range steps {
				if _, err := h.Step(ctx, onHost[i]); err != nil {
					b.Fatalf("h.Step: %v, want no error", err)
				}
			}
			h.check(b, a)
		})
	}
}

// BenchmarkAgentsCall is Observe from ids and inputs in Go to votes and decisions in Go, of n
// random agents of 10M: through memory of the device (copied), and read and written by the kernels
// where it is on the host (mapped). Device is Step alone, of few observations a graph, and launches
// the same by two launches. Run it with -benchtime 300x.
func BenchmarkAgentsCall(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	const features = 8
	all := scaled(d, 10_000_000)
	a := makeAgents(b, d, address(b, "gru", nil, 64, features, 5), all, Options{})
	fillPages(b, a)
	ctx := context.Background()
	times := func(b *testing.B, f func() error) {
		b.Helper()
		var all []time.Duration
		for i := range b.N + 20 {
			start := time.Now()
			testkit.NoError(b, "f", f())
			if i >= 20 {
				all = append(all, time.Since(start))
			}
		}
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-us")
		b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-us")
		b.ReportMetric(0, "ns/op")
	}
	for _, n := range []int{1, 64, 1024, 4096, 16_384, 65_536, 1 << 20} {
		ids, inputs := randomObservations(rand.New(rand.NewPCG(7, uint64(n))), int(all), min(n, int(all)), features)
		for name, few := range map[string]int{"copied": 0, "mapped": 1 << 30} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				a.hostObservations = few
				times(b, func() error {
					_, err := a.Observe(ctx, ids, inputs)
					return err
				})
			})
		}
		a.hostObservations = 1 << 30
		o, err := a.Load(ids, inputs)
		testkit.NoError(b, "a.Load", err)
		b.Run(fmt.Sprintf("%d/device", n), func(b *testing.B) {
			times(b, func() error {
				_, err := a.Step(ctx, o)
				return err
			})
		})
		b.Run(fmt.Sprintf("%d/launches", n), func(b *testing.B) {
			times(b, func() error {
				if err := a.next(ctx); err != nil {
					return err
				}
				if err := a.putStep(o.staged, o.launches[0], uint32(n), 0); err != nil {
					return err
				}
				_, err := a.await(ctx, 1)
				return err
			})
		})
		testkit.NoError(b, "o.Close", o.Close())
	}
}

// randomObservations are for n agents of all, none twice.
func randomObservations(r *rand.Rand, all, n, features int) (ids []uint32, inputs []float32) {
	taken := make([]uint64, all/64+1)
	for len(ids) < n {
		id := r.Uint32N(uint32(all))
		if taken[id/64]>>(id%64)&1 == 0 {
			taken[id/64] |= 1 << (id % 64)
			ids = append(ids, id)
		}
	}
	inputs = make([]float32, n*features)
	for i := range inputs {
		inputs[i] = r.Float32()*2 - 1
	}
	return ids, inputs
}
