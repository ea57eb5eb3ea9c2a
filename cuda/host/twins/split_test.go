package twins_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestSplit compares random launches with links one by one: links to the agents follow one another,
// and other links of a row follow from its end on. Nothing else is written.
func TestSplit(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(5, 62))
	copied, rest := 0, 0
	for i := range testkit.Of(300, 80) {
		launch := launches.RandomGraph(r, graphset.Split, r.IntN(3000))
		a := launches.Named[graphset.SplitBound](launch.Params, nil)
		toColumns, toWeights := slices.Clone(a.ToColumns), slices.Clone(a.ToWeights)
		toDelays := slices.Clone(a.ToDelays)
		for row := range a.Rows {
			id := a.FirstRow + row
			from := a.Offsets[id]
			links := int(a.Offsets[id+1] - from)
			next, last := int(a.Places[row]), int(a.Places[row])+links-1
			for k := range links {
				at := from + uint64(k)
				to := next
				if c := a.Columns[at]; c >= a.Low && c < a.Low+a.Size {
					next++
					copied++
				} else if a.Rest == 1 {
					to = last
					last--
					rest++
				} else {
					continue
				}
				toColumns[to] = a.Columns[at] - a.Low
				if a.Weighted == 1 {
					toWeights[to] = a.Weights[at]
				}
				if delay := delayOf(&a.DrawnBound, id, k); a.Delayed == 1 {
					if toDelays[to] = byte(delay); a.Listed == 1 {
						toDelays[to] = a.Delays[at]
					}
				}
			}
		}
		got := launches.Named[graphset.SplitBound](launch.Params, launches.On(t, ref, graphset.Split, launch.Params))
		if !slices.Equal(got.ToColumns, toColumns) || !slices.Equal(got.ToWeights, toWeights) ||
			!slices.Equal(got.ToDelays, toDelays) {
			t.Fatalf("launch %d: the links differ from those one by one", i)
		}
	}
	if copied < 10_000 || rest < 10_000 {
		t.Errorf("%d links of agents and %d of others: too few for a comparison", copied, rest)
	}
}

// TestCount compares random launches with links one by one.
func TestCount(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(5, 63))
	for i := range testkit.Of(100, 30) {
		launch := launches.RandomGraph(r, graphset.Count, r.IntN(3000))
		a := launches.Named[graphset.CountBound](launch.Params, nil)
		var want []uint32
		for row := range len(a.Offsets) - 1 {
			n := uint32(0)
			for _, c := range a.Columns[a.Offsets[row]:a.Offsets[row+1]] {
				if c >= a.Low && c < a.Low+a.Size {
					n++
				}
			}
			want = append(want, n)
		}
		got := launches.Named[graphset.CountBound](launch.Params, launches.On(t, ref, graphset.Count, launch.Params))
		if !slices.Equal(got.Lengths, want) {
			t.Fatalf("launch %d: the numbers differ from the numbers of links one by one", i)
		}
	}
}

// TestPick: a list has each agent whose bit is 1 once.
func TestPick(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(5, 64))
	for range 30 {
		agents := 1 + r.IntN(9000)
		bits, want := make([]uint32, (agents+31)/32), []uint32{}
		for id := range agents {
			if r.IntN(20) == 0 {
				bits[id/32] |= 1 << (id % 32)
				want = append(want, uint32(id))
			}
		}
		a := &launches.Arrays{Params: []launches.Param{
			{Mem: device.Bytes(bits)},
			{Arg: device.Uint32(uint32(agents))},
			{Mem: launches.Poisoned(4 * agents)},
			{Mem: device.Bytes([]uint32{7, 0})},
			{Arg: device.Uint32(1)},
		}}
		got := launches.Named[graphset.PickBound](a.Params, launches.On(t, ref, graphset.Pick, a.Params))
		if int(got.Counts[1]) != len(want) || got.Counts[0] != 7 {
			t.Fatalf("%d agents: lists of %d, want 7 and %d", agents, got.Counts, len(want))
		}
		if list := slices.Sorted(slices.Values(got.Active[:got.Counts[1]])); !slices.Equal(list, want) {
			t.Fatalf("%d agents: the list differs", agents)
		}
	}
}

// TestPickOnTheCPU runs the CUDA text of Pick, compiled for the processor: a list has each agent
// whose bit is 1 once, and lists of several agents are in any order.
func TestPickOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	source, _ := kernels.Lookup(graphset.Pick)
	program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Exact, emulation.Sanitized,
		[]string{fmt.Sprintf("-DPARAMS=%d", len(source.Params))})...)
	r := rand.New(rand.NewPCG(53, 62))
	for range testkit.Of(40, 8) {
		agents, in := 1+r.IntN(40_000), 1+r.IntN(40)
		bits, want := make([]uint32, (agents+31)/32), []uint32{}
		for id := range agents {
			if r.IntN(in) == 0 {
				bits[id/32] |= 1 << (id % 32)
				want = append(want, uint32(id))
			}
		}
		params := []launches.Param{
			{Mem: device.Bytes(bits)},
			{Arg: device.Uint32(uint32(agents))},
			{Mem: launches.Poisoned(4 * agents)},
			{Mem: device.Bytes([]uint32{0, 7})},
			{Arg: device.Uint32(0)},
		}
		after, err := launches.Emulate(t, program, params, 32*(1+r.IntN(4)), 1+r.IntN(3))
		if err != nil {
			t.Fatal(err)
		}
		got := launches.Named[graphset.PickBound](params, after)
		if int(got.Counts[0]) != len(want) || got.Counts[1] != 7 {
			t.Fatalf("%d agents: lists of %d, want %d and 7", agents, got.Counts, len(want))
		}
		if list := got.Active[:len(want)]; !slices.Equal(slices.Sorted(slices.Values(list)), want) {
			t.Fatalf("%d agents: the list differs", agents)
		}
	}
}
