package graph

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// BenchmarkNeuronsDevices measures ticks of a network of neurons on the first of -devices and on
// all of them, in turns: the time from the call to its answer, with the copies there and back.
// Neurons spike by noise, about one in a hundred in each tick of the cell lif: active-% is the
// share in the last one. A call on all begins with the same states as the one before, and ends with
// the same bytes in all pages. Times are medians of deviceTimes.
func BenchmarkNeuronsDevices(b *testing.B) {
	d := openNamed(b, deviceAt(0))
	neurons, synapses := benchSizes(d)
	ticks, devices := *benchTicks, max(2, len(strings.Split(*deviceNames, ",")))
	if ticks == 0 {
		if ticks = 100; d.Properties().ComputeMajor == 0 {
			ticks = 20
		}
	}
	params := map[string]float64{"noise": 0.45, "refractory": 0, "weight": 1e-4, "inhibitory": 0.2}
	if *benchCell == cells.IzhikevichName {
		params = map[string]float64{"noise": 9, "inhibitory_noise": 4, "weight": 1e-3, "inhibitory": 0.2}
	}
	for _, c := range []struct {
		name   string
		delays edges.Delays
	}{{"delays=none", edges.Delays{}}, {"delays=1-8", edges.Delays{Least: 1, Most: 8}}} {
		b.Run(c.name, func(b *testing.B) {
			n := open(b, d, neuronsOf(b, *benchCell, 4000, params), Options{
				Agents: neurons, Links: edges.Links{Degree: synapses, Rewire: 1, Seed: 1, Delays: c.delays}, Seed: 2,
				Devices: devices, Peers: peersOf(b, devices-1),
			})
			if got := len(n.Devices()); got != devices {
				b.Fatalf("the neurons are on %d devices of %d", got, devices)
			}
			s := n.model.(*spiking)
			all := s.regions
			last := benchDevices(b, n, ticks, func(shared bool) {
				if s.regions = nil; shared {
					s.regions = all
				}
			}, func(int) { fillSpikes(b, n, 0.01) }, func(b *testing.B, n *Network) [][]byte {
				return [][]byte{wholePages(b, n)}
			})
			b.ReportMetric(100*float64(last[1])/float64(n.Len()), "active-%")
			ok(b, n.Close())
		})
	}
}
