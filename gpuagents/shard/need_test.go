package shard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// fixed is a place that a test sets.
type fixed struct {
	device  device.Device
	budget  *pages.Budget
	onHost  bool
	reduced bool
}

// slotOn returns a slot on a device, with more memory for pages than any test needs.
func slotOn(d device.Device) *fixed { return &fixed{device: d, budget: pages.NewBudget(1<<40, 0)} }

func (p *fixed) Device() device.Device  { return p.device }
func (p *fixed) Budget() *pages.Budget  { return p.budget }
func (p *fixed) OnHost() bool           { return p.onHost }
func (*fixed) Weights() *weights.Holder { return nil }
func (p *fixed) Reduced() bool          { return p.reduced }
func (*fixed) Succeeded(int)            {}

func record(t *testing.T, text string, groups int) swarms.Swarm {
	t.Helper()
	spec, data := parse(t, text)
	return swarms.Swarm{Version: jobs.Version, ID: "x", Name: spec.Name, Spec: data, Groups: groups}
}

// needTexts are swarms of both kinds of state and of all cells.
var needTexts = map[string]string{
	"gru by agent":   gruText,
	"bf16":           strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1),
	"leaky by agent": workText,
	"quantum": "name: x\naddressed: agent\nagents: 3300\nagents_per_group: 33\npage_size: 64KiB\ncell: " +
		"{kind: quantum, circuit: 'qubit[5] q; bit c; U(1, 2, 3) q; c = measure q[3];'}\n",
	"predictor": "name: x\nagents_per_group: 48\npage_size: 64KiB\n",
	"lif":       "name: x\nagents_per_group: 7\npage_size: 64KiB\ncell: {kind: lif}\nfeatures: [a, b]\n",
	"leaky":     "name: x\nagents_per_group: 16\npage_size: 64KiB\ncell: {kind: leaky}\n",
	"life":      "name: x\naddressed: agent\ncell: {kind: life}\nneighbours: {width: 96, height: 1000}\n",
	"sir":       "name: x\naddressed: agent\nagents: 9000\ncell: {kind: sir}\nneighbours: {ring: {reach: 3}}\n",
	"boids": "name: x\naddressed: agent\nagents: 900\ncell: {kind: boids}\n" +
		"neighbours: {space: {size: [9, 9, 9], radius: 1}}\n",
	"custom on a grid": "name: x\naddressed: agent\nneighbours: {width: 96, height: 50, depth: 7}\ncell:\n" +
		"  kind: custom\n  state: {v: f32, n: u8}\n  step: |\n    " + lattice.StepSignature + " { self.v += 1; }\n",
	"custom on a graph": "name: x\naddressed: agent\nagents: 960\nneighbours: {random: {degree: 3}}\ncell:\n" +
		"  kind: custom\n  state: {v: f32, n: u8}\n  step: |\n    " + lattice.StepSignature + " { self.v += 1; }\n",
	"gru": "name: x\nagents_per_group: 16\npage_size: 64KiB\ncell: {kind: gru}\n",
}

// TestNeed: what is kept for a shard is what it then takes, of both kinds of state and of all
// cells.
func TestNeed(t *testing.T) {
	host := launches.Host(t)
	for name, text := range needTexts {
		const have = 1 << 40
		d := host
		if strings.Contains(text, "custom") { // a kernel for the processor, which is not launched
			d = emulation.NewDevice(t, host)
		}
		spec, err := swarm.Parse("test.yaml", []byte(text))
		testkit.NoError(t, "swarm.Parse", err)
		groups := 40
		if spec.Topology().ByAgent {
			groups = spec.Groups()
		}
		need := Need(record(t, text, groups))
		on := slotOn(d)
		p, err := state.New(d, on.budget, spec, state.GroupRange{Shards: 1, Groups: groups, All: groups})
		testkit.NoError(t, "state.New", err)
		if took := have - on.budget.Room(); need != took || need == 0 {
			t.Errorf("%s: %d bytes are kept, and it has taken %d", name, need, took)
		}
		if err := p.Close(); err != nil {
			t.Errorf("p.Close: %v, want no error", err)
		}
		if room := on.budget.Room(); room != have {
			t.Errorf("%s: %d bytes left in the end", name, room)
		}
		stated := strings.Replace(text, "name: x\n", "name: x\npage_size: 64KiB\n", 1)
		if strings.Contains(text, "page_size") {
			stated = text
		}
		spec, err = swarm.Parse("test.yaml", []byte(stated))
		testkit.NoError(t, "swarm.Parse", err)
		got, want := Need(record(t, stated, groups)), spec.PageBytes(groups)+state.BesideBytes(spec)
		if got != want || got == 0 {
			t.Errorf("%s: the record needs %d bytes, want %d", name, got, want)
		}
	}
	if n := Need(swarms.Swarm{Spec: json.RawMessage("{"), Groups: 9}); n != 0 {
		t.Errorf("%d bytes of a record that cannot be read", n)
	}
}
