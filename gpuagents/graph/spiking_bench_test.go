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
)

var (
	benchNeurons = flag.Int64("neurons", 0, "neurons of BenchmarkSpiking; 0: 10 million, and 20,000 on the host "+
		"device")
	benchCell     = flag.String("cell", cells.LIFName, "cell of BenchmarkSpiking, lif or izhikevich")
	benchSynapses = flag.Int("synapses", 0, "links of each; 0: 1,000, and 100 on the host device")
)

// BenchmarkSpiking measures ticks of networks in which a share of the neurons has spiked before: the
// whole tick, and its part that carries the spikes. Before that, ticks of a smaller network are compared
// with those of the host device, all bits of the state. Times are those of the device, medians of
// benchTimes.
func BenchmarkSpiking(b *testing.B) {
	d := openDevice(b)
	neurons, synapses, check := *benchNeurons, *benchSynapses, *benchCheck
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
	if check == 0 && !onHost {
		check = 200_000
	}
	if check > 0 {
		compareSpiking(b, d, check)
	}
	n := open(b, d, neuronsOf(b, *benchCell, 4000, map[string]float64{"weight": 1e-4, "inhibitory": 0.2}), Options{
		Agents: neurons, Links: Links{Degree: synapses, Rewire: 1, Seed: 1}, Seed: 2,
	})
	for _, share := range []float64{0, 0.001, 0.01, 0.1} {
		b.Run(fmt.Sprintf("active=%v", share), func(b *testing.B) {
			spiking := fillSpikes(b, n, share)
			benchSpikes(b, n, float64(spiking)*float64(synapses))
		})
	}
}

// fillSpikes puts a share of the neurons at random into the state after a spike, and the others to
// potentials at random. It returns how many have spiked.
func fillSpikes(b *testing.B, n *Network, share float64) (spikes int) {
	b.Helper()
	r := rand.New(rand.NewPCG(11, 7))
	content := make([]byte, n.layout.PageBytes)
	least, most := float32(0), float32(0.9)
	if *benchCell == cells.IzhikevichName {
		least, most = -75, -60
	}
	potentials := device.Of[float32](content[n.model.(*spiking).potential:][:4*n.per])
	for page := range n.memory.Count() {
		clear(content)
		for k := range min(int64(n.per), n.Len()-int64(page)*int64(n.per)) {
			if potentials[k] = least + r.Float32()*(most-least); r.Float64() < share {
				content[k] = graphset.Spike
				spikes++
			}
		}
		ok(b, n.memory.Write(b.Context(), uint64(page), content))
	}
	ok(b, n.states.Ready(b.Context()))
	return spikes
}

// benchSpikes measures a tick of the network as it is, which carries so many events.
func benchSpikes(b *testing.B, n *Network, events float64) {
	b.Helper()
	s, size := n.model.(*spiking), n.memory.Arena().Size()
	kept, err := n.dev.Alloc(size, "benchmark")
	ok(b, err)
	defer kept.Close()
	ok(b, n.stream.Copy(kept, 0, n.memory.Arena(), 0, size))
	var at [3]device.Event
	for i := range at {
		at[i], err = n.dev.NewEvent()
		ok(b, err)
		defer at[i].Close()
	}
	var push, step []time.Duration
	for range benchTimes {
		ok(b, n.stream.Copy(n.memory.Arena(), 0, kept, 0, size))
		ok(b, s.begin(1))
		ok(b, n.stream.Record(at[0]))
		ok(b, s.carry(0))
		ok(b, n.stream.Record(at[1]))
		ok(b, s.step(0, 1, false))
		ok(b, n.stream.Record(at[2]))
		ok(b, n.stream.Sync(b.Context()))
		for i, to := range []*[]time.Duration{&push, &step} {
			took, err := at[i+1].Since(at[i])
			ok(b, err)
			*to = append(*to, took)
		}
	}
	slices.Sort(push)
	slices.Sort(step)
	us := func(of []time.Duration) float64 { return float64(of[len(of)/2].Nanoseconds()) / 1e3 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us(push), "push-us")
	b.ReportMetric(us(step), "step-us")
	b.ReportMetric(us(push)+us(step), "tick-us")
	b.ReportMetric(events/1e3/(us(push)+us(step)), "events/ns")
}

// compareSpiking makes ticks of a network on the device and on the host device, and compares all state.
func compareSpiking(b *testing.B, d device.Device, agents int64) {
	b.Helper()
	host, err := cuda.Open(b.Context(), "host", cuda.Options{})
	ok(b, err)
	defer host.Close()
	agents -= agents % 4000
	o := Options{Agents: agents, Links: Links{Degree: 50, Rewire: 1, Seed: 1}, Seed: 1 << 40}
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
	content, other := make([]byte, here.layout.PageBytes), make([]byte, here.layout.PageBytes)
	for page := range here.memory.Count() {
		ok(b, here.memory.Read(b.Context(), uint64(page), content))
		ok(b, there.memory.Read(b.Context(), uint64(page), other))
		if !bytes.Equal(content, other) {
			b.Fatalf("page %d differs from that of the host device", page)
		}
	}
	ok(b, there.Close())
}
