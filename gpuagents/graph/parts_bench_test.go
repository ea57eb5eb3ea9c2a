package graph

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

var benchTicks = flag.Int("ticks", 0, "ticks of a call of benchmarks of several devices; 0: 200, of neurons "+
	"100, and 20 on host devices")

// deviceTimes is how often benchmarks of several devices measure ticks on one device and on all.
const deviceTimes = 5

// BenchmarkSIRDevices measures ticks of an epidemic on a random graph on the first of -devices and
// on all of them, in turns: the time from the call to its answer, with the copies there and back.
// In the case steady nearly all agents are susceptible and stay so, so that all ticks have the work
// of the first. In the case outbreak most are recovered after some ticks, and later ticks have
// little work. A call on all begins with the same states as the one before, and ends with the same
// bytes in all pages. Times are medians of deviceTimes.
func BenchmarkSIRDevices(b *testing.B) {
	d := openNamed(b, deviceAt(0))
	onHost := d.Properties().ComputeMajor == 0
	agents, ticks, devices := *benchAgents, *benchTicks, max(2, len(strings.Split(*deviceNames, ",")))
	if agents == 0 {
		if agents = 100_000_000; onHost {
			agents = 100_000
		}
	}
	if ticks == 0 {
		if ticks = 200; onHost {
			ticks = 20
		}
	}
	for _, c := range []struct {
		name                                       string
		susceptible, infected, infection, recovery float64
	}{{"steady", 0.99, 0.01, 0.05, 1}, {"outbreak", 0.5, 0.3, 0.05, 0.1}} {
		b.Run(c.name, func(b *testing.B) {
			n := open(b, d, sirOf(b, 4000, c.infection, c.recovery), Options{
				Agents: agents, Links: edges.Links{Degree: *benchDegree, Rewire: 1, Seed: 1}, Seed: 2, Devices: devices,
				Peers: peersOf(b, devices-1),
			})
			if got := len(n.Devices()); got != devices {
				b.Fatalf("the agents are on %d devices of %d", got, devices)
			}
			e := n.model.(*epidemic)
			all := e.parts
			benchDevices(b, n, ticks, func(shared bool) {
				if e.parts = nil; shared {
					e.parts = all
				}
			}, func(i int) { fill(b, n, c.susceptible, c.infected, uint64(i)) }, content)
		})
	}
}

// benchDevices measures ticks of a network on one device and on all, between which share switches.
// Each call begins with what start makes of the pages, and content returns what calls leave there.
func benchDevices(b *testing.B, n *Network, ticks int, share func(shared bool), start func(i int),
	content func(b *testing.B, n *Network) [][]byte,
) (last []uint64) {
	b.Helper()
	devices := len(n.Devices())
	var took [2][]time.Duration
	for i := range 1 + deviceTimes {
		var ends [2][][]byte
		var tallies [2][]uint64
		for which := range 2 {
			n.always = which == 1
			share(n.always)
			ok(b, n.Reset(b.Context()))
			start(i)
			begin := time.Now()
			tally, err := n.Tick(b.Context(), b.Context(), ticks, 64)
			ok(b, err)
			if tallies[which] = tally; i > 0 { // the first has loads of kernels
				took[which] = append(took[which], time.Since(begin))
			}
			ends[which] = content(b, n)
		}
		if !slices.Equal(tallies[0], tallies[1]) || !slices.EqualFunc(ends[0], ends[1], bytes.Equal) {
			b.Fatalf("%d agents in each state on one device and %d on all, or they are others", tallies[0], tallies[1])
		}
		last = tallies[0]
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Nanoseconds()) / 1e3 / float64(ticks)
	}
	one, all := median(took[0]), median(took[1])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(devices), "devices")
	b.ReportMetric(one, "one-us/tick")
	b.ReportMetric(all, "all-us/tick")
	b.ReportMetric(one/all, "x")
	return last
}

// content returns the states in all pages.
func content(b *testing.B, n *Network) (all [][]byte) {
	b.Helper()
	for i := range n.Memory().Count() {
		page := make([]byte, n.Layout().PageBytes)
		ok(b, n.Memory().Read(b.Context(), uint64(i), page))
		all = append(all, page[:min(int64(n.PerPage()), n.Len()-int64(i)*int64(n.PerPage()))])
	}
	return all
}
