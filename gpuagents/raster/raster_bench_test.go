package raster

import (
	"flag"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
)

var benchAgents = flag.Int64("agents", 0, "agents of BenchmarkHeat; 0: 100 million, and 1 million on the host device")

// BenchmarkHeat draws all agents of a swarm in 512 x 512 cells. device-ms is the time of the device
// for a picture, and device-% its part of a second: of a device that draws one picture a second.
// shard-ms is the time for which the shard applies no entries, in parts of some milliseconds.
func BenchmarkHeat(b *testing.B) {
	for _, c := range []struct {
		name, cell, variable string
		values               map[string]float64
		of                   int
	}{
		{"leaky/potential", "leaky", "potential", nil, kernels.AgentVarPotential},
		{"leaky/vote", "leaky", "vote", nil, kernels.AgentVarVote},
		{"gru8/row", "gru", "row", map[string]float64{"hidden": 8}, kernels.AgentVarRow},
	} {
		b.Run(c.name, func(b *testing.B) { benchHeat(b, c.cell, c.variable, c.values, c.of) })
	}
}

func benchHeat(b *testing.B, cell, variable string, values map[string]float64, of int) {
	dev := opentest.Device(b)
	n := *benchAgents
	if n == 0 {
		if n = 100_000_000; dev.Properties().ComputeMajor == 0 {
			n = 1_000_000
		}
	}
	n -= n % 64
	a, s := open(b, dev, cell, values, n, agents.Options{})
	ok := func(err error) {
		if err != nil {
			b.Fatalf("%v, want no error", err)
		}
	}
	l := a.Layout()
	page := make([]byte, l.PageBytes)
	for i := range page[:l.Slots*l.Agents] {
		page[int(l.Offsets[kernels.AgentVarVote])+i] = byte(i % 3)
	}
	if v := l.Vars[of]; v.Elem == kernels.F32 {
		for i, f := 0, device.Of[float32](page[l.Offsets[of]:][:4*v.Width*l.Slots*l.Agents]); i < len(f); i++ {
			f[i] = float32(i%100) / 100
		}
	}
	for i := range a.Memory().Count() {
		ok(a.Memory().Write(b.Context(), uint64(i), page))
	}
	draw(b, s, variable, MaxCells)
	from, err := dev.NewEvent()
	ok(err)
	defer from.Close()
	to, err := dev.NewEvent()
	ok(err)
	defer to.Close()
	var onDevice, onShard time.Duration
	b.ResetTimer()
	for range b.N {
		onShard += draw(b, s, variable, MaxCells).Took
	}
	b.StopTimer()
	for range b.N {
		d, err := s.Begin(variable, MaxCells)
		ok(err)
		ok(s.stream.Record(from))
		ok(s.launch(d, d.cells))
		ok(s.stream.Record(to))
		ok(s.stream.Sync(b.Context()))
		took, err := to.Since(from)
		ok(err)
		onDevice += took
	}
	ms := float64(onDevice.Nanoseconds()) / float64(b.N) / 1e6
	b.ReportMetric(ms, "device-ms")
	b.ReportMetric(ms/10, "device-%")
	b.ReportMetric(float64(onShard.Nanoseconds())/float64(b.N)/1e6, "shard-ms")
	b.ReportMetric(float64(n), "agents")
}
