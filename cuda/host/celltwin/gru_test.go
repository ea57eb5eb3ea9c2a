package celltwin

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestWeightsOfGroups: a group's weights are drawn once, by seed and number alone, within their
// reach and spread over it; groups do not compute the same, and what a group computes does not
// depend on its slot or on who else is there.
func TestWeightsOfGroups(t *testing.T) {
	const agents, hidden = 5, 8
	b := bind(t, "gru", map[string]float64{"warmup": 20, "hidden": hidden}, agents, 1, cells.Weighted)
	b.Own = true
	rng := rand.New(rand.NewPCG(5, 5))
	var times []int64
	var x []float32
	for _, e := range randomEvents(rng, 200, 1, 1) {
		times, x = append(times, e.time), append(x, e.features...)
	}
	weights := func(s *swarm, slot int) []float32 {
		n := kernels.GruShared(hidden)
		return device.Of[float32](s.page)[int(s.layout.Offsets[kernels.GruVarWeights])/4+slot*n:][:n]
	}
	alone := func(slot, group uint32) (*swarm, columns) {
		s := newSwarm(t, b, 1<<18)
		first := s.observe([]kernels.Run{{Slot: slot, Count: 1, Group: group}}, times[:1], x[:1])
		drawn := slices.Clone(weights(s, int(slot)))
		out := first.and(s.observe([]kernels.Run{{Slot: slot, Count: 199, Group: group}}, times[1:], x[1:]))
		if !slices.Equal(drawn, weights(s, int(slot))) {
			t.Error("the weights changed")
		}
		return s, out
	}
	a, outA := alone(0, 7)
	c, outC := alone(2, 7)
	d, outD := alone(0, 8)
	if !outA.equal(outC) || !slices.Equal(weights(a, 0), weights(c, 2)) {
		t.Error("group 7 is another in another slot")
	}
	if outA.equal(outD) || bytes.Equal(a.page, d.page) {
		t.Error("groups 7 and 8 compute the same")
	}
	both := newSwarm(t, b, 1<<18)
	out := both.observe([]kernels.Run{{Slot: 0, Count: 200, Group: 7}, {Slot: 1, First: 200, Count: 200, Group: 8}},
		slices.Concat(times, times), slices.Concat(x, x))
	if !out.equal(outA.and(outD)) {
		t.Error("groups are others beside one another")
	}
	// A uniform number of deviation s is within s times the root of 3, and the mean of n has one of
	// s over the root of n.
	reaches := b.ParamBlock()
	for gate := range kernels.GruGates {
		for j := range hidden {
			row := weights(a, 0)[(gate*hidden+j)*(hidden+2):][:hidden+2]
			for _, w := range row[:hidden] {
				if most := device.Of[float32](device.Bytes(reaches[kernels.GruUnitsReach:][:1]))[0]; w == 0 ||
					w > most || w < -most {
					t.Fatalf("gate %d, unit %d: weight %v beyond %v", gate, j, w, most)
				}
			}
		}
	}
	if s := newSwarm(t, bind(t, "gru", nil, agents, 1, cells.Weighted),
		1<<18); len(s.layout.Vars) != len(a.layout.Vars)-1 {
		t.Error("shared weights are in the state")
	}
}
