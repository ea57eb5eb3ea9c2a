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
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

var (
	benchNeurons = flag.Int64("neurons", 0, "neurons of BenchmarkSpiking; 0: 10 million, and 20,000 on the host "+
		"device")
	benchCell     = flag.String("cell", cells.LIFName, "cell of BenchmarkSpiking, lif or izhikevich")
	benchSynapses = flag.Int("synapses", 0, "links of each; 0: 1,000, and 100 on the host device")
)

// BenchmarkSpiking measures ticks of networks in which a share of the neurons has spiked before:
// the whole tick, and its part that carries the spikes. Before that, all bits of the state after
// ticks of a smaller network are compared with the host device. Times are device times, medians of
// benchTimes.
func BenchmarkSpiking(b *testing.B) { benchmarkSpiking(b, edges.Delays{}) }

// BenchmarkSpikingDelays is BenchmarkSpiking for links with delays from one tick to a longest
// delay. open-us is the time in which a network that opens makes the sums of coming ticks, if as
// many neurons have spiked in each earlier tick.
func BenchmarkSpikingDelays(b *testing.B) {
	for _, most := range []int{8, edges.MaxDelay} {
		b.Run(fmt.Sprintf("delays=1-%d", most), func(b *testing.B) {
			benchmarkSpiking(b, edges.Delays{Least: 1, Most: most})
		})
	}
}

func benchmarkSpiking(b *testing.B, delays edges.Delays) {
	d := openDevice(b)
	neurons, synapses := benchSizes(d)
	check := *benchCheck
	if check == 0 && d.Properties().ComputeMajor > 0 {
		check = 200_000
	}
	if check > 0 {
		compareSpiking(b, d, check, delays)
	}
	n := open(b, d, neuronsOf(b, *benchCell, 4000, map[string]float64{"weight": 1e-4, "inhibitory": 0.2}), Options{
		Agents: neurons, Links: edges.Links{Degree: synapses, Rewire: 1, Seed: 1, Delays: delays}, Seed: 2,
	})
	for _, share := range []float64{0, 0.001, 0.01, 0.1} {
		b.Run(fmt.Sprintf("active=%v", share), func(b *testing.B) {
			spiking := fillSpikes(b, n, share)
			benchSpikes(b, n, float64(spiking)*float64(synapses))
		})
	}
}

// benchSizes returns how many neurons a benchmark has on a device, and how many links each has.
func benchSizes(d device.Device) (neurons int64, synapses int) {
	neurons, synapses = *benchNeurons, *benchSynapses
	onHost := d.Properties().ComputeMajor == 0
	if neurons == 0 {
		if neurons = 10_000_000; onHost {
			neurons = 20_000
		}
	}
	if synapses == 0 {
		if synapses = 1000; onHost {
			synapses = 100
		}
	}
	return neurons, synapses
}

// fillSpikes puts a share of the neurons at random into the state after a spike, and the others to
// potentials at random. If links have delays, as many have spiked in each of the ticks before. It
// returns how many have spiked.
func fillSpikes(b *testing.B, n *Network, share float64) (spikes int) {
	b.Helper()
	r := rand.New(rand.NewPCG(11, 7))
	content := make([]byte, n.Layout().PageBytes)
	least, most := float32(0), float32(0.9)
	if *benchCell == cells.IzhikevichName {
		least, most = -75, -60
	}
	s := n.model.(*spiking)
	potentials := device.Of[float32](content[s.potential:][:4*n.PerPage()])
	for page := range n.Memory().Count() {
		clear(content)
		for k := range min(int64(n.PerPage()), n.Len()-int64(page)*int64(n.PerPage())) {
			if potentials[k] = least + r.Float32()*(most-least); r.Float64() < share {
				content[k] = graphset.Spike
				spikes++
			}
			if s.delayed != nil {
				past := uint32(content[k])
				for age := 1; age < n.slots; age++ {
					if r.Float64() < share {
						past |= 1 << age
					}
				}
				device.Of[uint32](content[s.delayed.history:][:4*n.PerPage()])[k] = past
			}
		}
		ok(b, n.Memory().Write(b.Context(), uint64(page), content))
	}
	ok(b, n.Columns.Ready(b.Context()))
	return spikes
}

// benchSpikes measures a tick of the network in its present state. events is the number of spikes
// that it carries.
func benchSpikes(b *testing.B, n *Network, events float64) {
	b.Helper()
	s, size := n.model.(*spiking), n.Memory().Arena().Size()
	kept, err := n.Device().Alloc(size, "benchmark")
	ok(b, err)
	defer kept.Close()
	ok(b, n.Stream.Copy(kept, 0, n.Memory().Arena(), 0, size))
	var at [4]device.Event
	for i := range at {
		at[i], err = n.Device().NewEvent()
		ok(b, err)
		defer at[i].Close()
	}
	var push, step, next, opening []time.Duration
	for range benchTimes {
		ok(b, n.Stream.Copy(n.Memory().Arena(), 0, kept, 0, size))
		ok(b, n.Stream.Sync(b.Context()))
		began := time.Now()
		ok(b, s.begin(1))
		ok(b, n.Stream.Sync(b.Context()))
		opening = append(opening, time.Since(began))
		ok(b, n.Stream.Record(at[0]))
		ok(b, s.whole.carry(0, 0))
		ok(b, n.Stream.Record(at[1]))
		ok(b, s.whole.step(0, 1, false))
		ok(b, n.Stream.Record(at[2]))
		if s.delayed != nil {
			ok(b, s.whole.append())
			s.delayed.advance()
		}
		ok(b, n.Stream.Record(at[3]))
		ok(b, n.Stream.Sync(b.Context()))
		for i, to := range []*[]time.Duration{&push, &step, &next} {
			took, err := at[i+1].Since(at[i])
			ok(b, err)
			*to = append(*to, took)
		}
	}
	us := func(of []time.Duration) float64 {
		slices.Sort(of)
		return float64(of[len(of)/2].Nanoseconds()) / 1e3
	}
	b.ReportMetric(0, "ns/op")
	if s.delayed != nil { // of an entry of one tick; longer ones remember the last ticks alone
		b.ReportMetric(us(next), "remember-us")
		b.ReportMetric(us(opening), "open-us")
	}
	b.ReportMetric(us(push), "push-us")
	b.ReportMetric(us(step), "step-us")
	b.ReportMetric(us(push)+us(step), "tick-us")
	b.ReportMetric(events/1e3/(us(push)+us(step)), "events/ns")
}

// compareSpiking makes ticks of a network on the device and on the host device, and compares all
// state.
func compareSpiking(b *testing.B, d device.Device, agents int64, delays edges.Delays) {
	b.Helper()
	host, err := cuda.Open(b.Context(), "host", cuda.Options{})
	ok(b, err)
	defer host.Close()
	agents -= agents % 4000
	o := Options{Agents: agents, Links: edges.Links{Degree: 50, Rewire: 1, Seed: 1, Delays: delays}, Seed: 1 << 40}
	params := map[string]float64{"noise": 0.3, "inhibitory": 0.2}
	if *benchCell == cells.IzhikevichName {
		params["noise"], params["inhibitory_noise"] = 9, 3
	}
	cell := neuronsOf(b, *benchCell, 4000, params)
	here, there := open(b, d, cell, o), open(b, host, cell, o)
	fillSpikes(b, here, 0.05)
	fillSpikes(b, there, 0.05)
	got, want := tick(b, here, 20), tick(b, there, 20)
	if !slices.Equal(got, want) || got[1] == 0 {
		b.Fatalf("%d neurons in each state, want %d", got, want)
	}
	content, other := make([]byte, here.Layout().PageBytes), make([]byte, here.Layout().PageBytes)
	for page := range here.Memory().Count() {
		ok(b, here.Memory().Read(b.Context(), uint64(page), content))
		ok(b, there.Memory().Read(b.Context(), uint64(page), other))
		if !bytes.Equal(content, other) {
			b.Fatalf("page %d differs from the host device", page)
		}
	}
	ok(b, there.Close())
}
