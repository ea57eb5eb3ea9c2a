package lattice

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

var (
	benchSide = flag.Int("side", 0, "columns and rows of the grids of two dimensions of BenchmarkTick; 0: 8192, and "+
		"64 on the host device")
	benchCube = flag.Int("cube", 0, "sides of the grids of three dimensions; 0: 512, and 16 on the host device")
	benchBand = flag.Int64("band", 0, "layers that a thread makes in BenchmarkTick; 0: the number of New")
)

// benchTimes is how often BenchmarkTick measures.
const benchTimes = 20

// heat spreads a variable: a step that does little beside its access of memory.
func heat() cells.Lattice {
	of := celltest.GrayScott()
	of.State, of.Params, of.Vote = map[string]string{"v": "f32"}, map[string]float64{"rate": 0.5}, "v"
	of.Hear = of.Hear[1:]
	of.Step = "__device__ void step(Agent &self, const Params &p, const Around &around) {\n" +
		"  self.v = self.v + p.rate * (around.mean.v - self.v);\n}\n"
	return of
}

// BenchmarkTick measures steps of periodic grids beside copies of as many bytes on the device: a
// step reads each byte of the state once and writes it once, and so does a copy. Times are device
// times, medians of benchTimes with 2*b.N steps or copies in each.
func BenchmarkTick(b *testing.B) {
	for _, c := range []struct {
		name  string
		of    cells.Lattice
		depth int
	}{
		{"GrayScott2D", celltest.GrayScott(), 1},
		{"Heat2D", heat(), 1},
		{"Fire2D", celltest.Fire(), 1},
		{"Heat3D", heat(), 3},
		{"GrayScott3D", celltest.GrayScott(), 3},
		{"Diffusion3D", celltest.Diffusion(), 3},
		{"Life3D", celltest.Life3D(), 3},
	} {
		for _, faces := range []bool{false, true} {
			if faces && !strings.HasPrefix(c.name, "Heat") {
				continue
			}
			b.Run(fmt.Sprintf("%s/faces=%v", c.name, faces), func(b *testing.B) {
				benchTick(b, c.of, c.depth, faces)
			})
		}
	}
}

// pick returns a size: from a flag, or for a GPU, or for the host device.
func pick(d device.Device, flagged, gpu, host int) int {
	switch {
	case flagged > 0:
		return flagged
	case d.Properties().ComputeMajor == 0:
		return host
	}
	return gpu
}

func benchTick(b *testing.B, of cells.Lattice, depth int, faces bool) {
	d := openDevice(b)
	side := pick(d, *benchSide, 8192, 64)
	g := celltest.Grid{Width: side, Height: side, Depth: 1, Periodic: true, Faces: faces}
	if depth > 1 {
		side = pick(d, *benchCube, 512, 16)
		g.Width, g.Height, g.Depth = side, side, side
	}
	l := open(b, d, of, g, min(side, 4096), Options{PageBytes: 2 << 20})
	if *benchBand > 0 {
		l.band = *benchBand
	}
	fill(b, l)
	size := int64(0) // of the state of all agents
	for _, v := range l.Layout().Vars[:len(l.Layout().Vars)-1] {
		size += l.Len() * int64(v.Elem.Bytes())
	}
	buffer, err := d.Alloc(size, "copy")
	ok(b, err)
	defer buffer.Close()
	median := medianOf(b, l)
	b.ResetTimer()
	step := median(func(i int) error { return launchAt(l, i, false) })
	counted := median(func(i int) error { return launchAt(l, i, true) })
	copied := median(func(i int) error {
		if i%2 == 0 {
			return l.Stream.Copy(buffer, 0, l.Second, 0, size)
		}
		return l.Stream.Copy(l.Second, 0, buffer, 0, size)
	})
	b.StopTimer()
	rate := func(took time.Duration) float64 { return 2 * float64(size) / float64(took.Nanoseconds()) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(step.Nanoseconds())/1e3, "step-us")
	b.ReportMetric(float64(counted.Nanoseconds())/1e3, "counted-us")
	b.ReportMetric(rate(step), "step-GB/s")
	b.ReportMetric(rate(copied), "copy-GB/s")
	b.ReportMetric(100*rate(step)/rate(copied), "%-of-copy")
}

// fill gives all agents random states: floats from 0 to 1, and numbers from 0 to 2.
func fill(b *testing.B, l *Lattice) {
	r := rand.New(rand.NewPCG(7, 7))
	content := make([]byte, l.Layout().PageBytes)
	for page := range l.Memory().Count() {
		clear(content)
		end := int(l.Layout().Offsets[len(l.Layout().Vars)-1])
		if len(l.Layout().Vars) > 2 || l.Layout().Vars[0].Elem.Bytes() == 4 {
			words := device.Of[float32](content[:end/4*4])
			for i := range words {
				words[i] = r.Float32()
			}
		} else {
			for i := range content[:end] {
				content[i] = byte(r.IntN(3))
			}
		}
		ok(b, l.Memory().Write(b.Context(), uint64(page), content))
	}
	ok(b, l.Columns.Ready(b.Context()))
}

// medianOf returns a function that measures work in the stream of a lattice.
func medianOf(b *testing.B, l *Lattice) func(f func(i int) error) time.Duration {
	from, err := l.Device().NewEvent()
	ok(b, err)
	b.Cleanup(func() { ok(b, from.Close()) })
	to, err := l.Device().NewEvent()
	ok(b, err)
	b.Cleanup(func() { ok(b, to.Close()) })
	return func(f func(i int) error) time.Duration {
		var all []time.Duration
		for range benchTimes {
			ok(b, l.Stream.Record(from))
			for i := range 2 * b.N {
				ok(b, f(i))
			}
			ok(b, l.Stream.Record(to))
			ok(b, l.Stream.Sync(b.Context()))
			took, err := to.Since(from)
			ok(b, err)
			all = append(all, took/time.Duration(2*b.N))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
}

// BenchmarkLinks measures steps of opinions over random links, each a random read of a word, beside
// a copy of the numbers of all links.
func BenchmarkLinks(b *testing.B) {
	d := openDevice(b)
	agents := int64(pick(d, 0, 10_000_000, 1000))
	of := celltest.Opinion()
	of.Hear, of.State, of.Vote = of.Hear[1:2], map[string]string{"opinion": "f32"}, "opinion"
	of.Step = "__device__ void step(Agent &self, const Params &p, const Around &around) {\n" +
		"  self.opinion = self.opinion + p.trust * (around.mean.opinion - self.opinion);\n}\n"
	of.Agents = 1000
	cell, err := cells.AddressLattice(of)
	ok(b, err)
	step, err := Compile(d, cell)
	ok(b, err)
	l, err := New(d, nil, cell, step, Options{
		Agents: agents, Links: &edges.Links{Degree: 10, Rewire: 1, Seed: 1}, Seed: 1,
	})
	ok(b, err)
	defer func() { ok(b, l.Close()) }()
	ok(b, l.Memory().Open(b.Context(), nil))
	fill(b, l)
	size := l.wires.Columns.Size()
	buffer, err := d.Alloc(size, "copy")
	ok(b, err)
	defer buffer.Close()
	median := medianOf(b, l)
	b.ResetTimer()
	took := median(func(i int) error { return launchAt(l, i, false) })
	copied := median(func(int) error { return l.Stream.Copy(buffer, 0, l.wires.Columns, 0, size) })
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took.Nanoseconds())/1e3, "step-us")
	b.ReportMetric(float64(10*agents)/float64(took.Nanoseconds()), "links-G/s")
	b.ReportMetric(2*float64(size)/float64(copied.Nanoseconds()), "copy-GB/s")
}

// launchAt puts tick number i into the stream.
func launchAt(l *Lattice, i int, count bool) error {
	from, to := l.Pair(i)
	return l.launch(from, to, uint64(i), count)
}
