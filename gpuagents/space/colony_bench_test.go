package space

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// BenchmarkColony measures ticks of colonies of up to 1,000,000 agents in two dimensions, 10,000 on
// the host device: from a tenth of them alive until they live and die in balance, and with all
// places taken, so that births find no room. A tick waits for the device, as it does in a swarm.
// Before that, all bits of the state after ticks of a smaller box are compared with the host
// device.
func BenchmarkColony(b *testing.B) {
	d := openDevice(b)
	agents, onHost := int64(1_000_000), d.Properties().ComputeMajor == 0
	if onHost {
		agents = 10_000
	}
	few := params{"birth": 0.2, "death": 0.02, "hunger": 0.005, "room": 6, "first": float64(agents) / 10}
	if !onHost {
		p := maps.Clone(few)
		p["first"] = 6000
		compare(b, d, cells.ColonyName, p, 0)
	}
	full := params{"birth": 0.5, "death": 0.01, "hunger": 0.001, "room": 1e6, "first": float64(agents)}
	for _, c := range []struct {
		name string
		p    params
		wide float64 // width of the box over its height
	}{{"balance", few, 1.5}, {"full", full, 1}} {
		b.Run(fmt.Sprintf("%s/agents=%d", c.name, agents), func(b *testing.B) {
			side := math.Sqrt(float64(agents)) // a density of at most 1
			x := open(b, d, cellOf(b, cells.ColonyName, 2, 100, c.p), Options{
				Agents: agents, Sides: []float64{side * c.wide, side}, Radius: 2, Periodic: true, Seed: 1,
			})
			tick(b, x, 50)
			began := time.Now()
			tally := tick(b, x, *benchRuns)
			took := time.Since(began)
			us := float64(took.Nanoseconds()) / 1e3 / float64(*benchRuns)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(us, "tick-us")
			b.ReportMetric(float64(tally[1]), "alive")
			b.ReportMetric(float64(tally[1])/us/1e3, "agent-steps/ns")
		})
	}
}
