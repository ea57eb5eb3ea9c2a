package graph

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

var (
	benchAgents = flag.Int64("agents", 0, "agents of BenchmarkSIR; 0: 100 million, and 100,000 on the host device")
	benchDegree = flag.Int("degree", 10, "links of an agent")
	benchCheck  = flag.Int64("check", 0, "agents of the comparison with the host device; 0: a million, and none there")
)

// benchTimes is how often BenchmarkSIR measures a tick.
const benchTimes = 30

// BenchmarkSIR measures ticks of epidemics on a random graph beside reads of all its links: copies
// of them on the device, half of whose time is a read, and checksums. Before that, all states after
// ticks of a smaller epidemic are compared with the host device. In each tick the agents are as the
// case says: susceptible, infected, and the rest recovered, at random. Times are device times,
// medians of benchTimes.
func BenchmarkSIR(b *testing.B) {
	d := openDevice(b)
	agents := *benchAgents
	onHost := d.Properties().ComputeMajor == 0
	if agents == 0 {
		if agents = 100_000_000; onHost {
			agents = 100_000
		}
	}
	check := *benchCheck
	if check == 0 && !onHost {
		check = 1_000_000
	}
	if check > 0 {
		compare(b, d, check)
	}
	for _, c := range []struct {
		susceptible, infected, infection float64
	}{{0.99, 0.01, 0.05}, {0.5, 0.3, 0.05}, {0.99, 0.01, 0.3}, {0.5, 0.3, 0.3}, {0.5, 0.3, 1}, {0.1, 0.1, 0.05}} {
		b.Run(fmt.Sprintf("S=%v/I=%v/infection=%v", c.susceptible, c.infected, c.infection), func(b *testing.B) {
			n := open(b, d, sirOf(b, 4000, c.infection, 0.1), Options{
				Agents: agents, Links: edges.Links{Degree: *benchDegree, Rewire: 1, Seed: 1}, Seed: 2,
			})
			fill(b, n, c.susceptible, c.infected, 3)
			benchTick(b, n)
		})
	}
}

// fill puts all agents at random into states.
func fill(b *testing.B, n *Network, susceptible, infected float64, seed uint64) {
	b.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	content := make([]byte, n.Layout().PageBytes)
	s, i := uint32(susceptible*(1<<32-1)), uint32((susceptible+infected)*(1<<32-1))
	for page := range n.Memory().Count() {
		clear(content)
		for k := range min(int64(n.PerPage()), n.Len()-int64(page)*int64(n.PerPage())) {
			switch v := r.Uint32(); {
			case v <= s:
			case v <= i:
				content[k] = graphset.Infected
			default:
				content[k] = graphset.Recovered
			}
		}
		ok(b, n.Memory().Write(b.Context(), uint64(page), content))
	}
	ok(b, n.Columns.Ready(b.Context()))
}

// benchTick measures a tick of the network as it is.
func benchTick(b *testing.B, n *Network) {
	b.Helper()
	size, links := n.Memory().Arena().Size(), 4*n.o.Links.Count(n.Len())
	var buffers []device.Buffer
	for _, bytes := range []int64{size, links, 8} {
		m, err := n.Device().Alloc(bytes, "benchmark")
		ok(b, err)
		defer m.Close()
		buffers = append(buffers, m)
	}
	kept, copied, sum := buffers[0], buffers[1], buffers[2]
	checksum, err := n.Device().Kernel("checksum")
	ok(b, err)
	from, err := n.Device().NewEvent()
	ok(b, err)
	defer from.Close()
	to, err := n.Device().NewEvent()
	ok(b, err)
	defer to.Close()
	ok(b, n.Stream.Copy(kept, 0, n.Memory().Arena(), 0, size))
	median := func(before, f func() error) float64 {
		var all []time.Duration
		for range benchTimes {
			ok(b, before())
			ok(b, n.Stream.Record(from))
			ok(b, f())
			ok(b, n.Stream.Record(to))
			ok(b, n.Stream.Sync(b.Context()))
			took, err := to.Since(from)
			ok(b, err)
			all = append(all, took)
		}
		slices.Sort(all)
		return float64(all[len(all)/2].Nanoseconds()) / 1e3
	}
	nothing := func() error { return nil }
	restore := func() error {
		ok(b, n.Stream.Copy(n.Memory().Arena(), 0, kept, 0, size))
		return n.model.begin(1)
	}
	tick := median(restore, func() error { return n.model.launch(0, 1, false) })
	counted := median(restore, func() error { return n.model.launch(0, 1, true) })
	mark := median(nothing, func() error { return n.model.begin(1) })
	copying := median(nothing, func() error { return n.Stream.Copy(copied, 0, n.columns, 0, links) })
	checking := median(nothing, func() error {
		return n.Stream.Launch(checksum, device.Geometry{Grid: 4096, Block: 256}, device.Ptr(n.columns),
			device.Uint64(uint64(links)), device.Ptr(sum))
	})
	read := min(copying/2, checking)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(tick, "tick-us")
	b.ReportMetric(counted, "counted-us")
	b.ReportMetric(mark, "begin-us")
	b.ReportMetric(copying/2, "half-copy-us")
	b.ReportMetric(checking, "checksum-us")
	b.ReportMetric(tick/read, "tick/read")
}

// compare makes ticks of an epidemic on the device and on the host device, and compares all states.
func compare(b *testing.B, d device.Device, agents int64) {
	b.Helper()
	host, err := cuda.Open(b.Context(), "host", cuda.Options{})
	ok(b, err)
	defer host.Close()
	agents -= agents % 4000
	o := Options{Agents: agents, Links: edges.Links{Degree: 10, Rewire: 0.5, Seed: 1}, Seed: 1 << 40}
	here, there := open(b, d, sirOf(b, 4000, 0.1, 0.1), o), open(b, host, sirOf(b, 4000, 0.1, 0.1), o)
	fill(b, here, 0.9, 0.05, 5)
	fill(b, there, 0.9, 0.05, 5)
	got, want := tick(b, here, 9), tick(b, there, 9)
	if !slices.Equal(got, want) || got[0] == 0 {
		b.Fatalf("%d agents in each state, want %d", got, want)
	}
	content, other := make([]byte, here.Layout().PageBytes), make([]byte, here.Layout().PageBytes)
	for page := range here.Memory().Count() {
		ok(b, here.Memory().Read(b.Context(), uint64(page), content))
		ok(b, there.Memory().Read(b.Context(), uint64(page), other))
		if n := min(int64(here.PerPage()), agents-int64(page)*int64(here.PerPage())); !bytes.Equal(
			content[:n],
			other[:n],
		) {
			b.Fatalf("page %d differs from the host device", page)
		}
	}
	ok(b, there.Close())
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v, want no error", err)
	}
}
