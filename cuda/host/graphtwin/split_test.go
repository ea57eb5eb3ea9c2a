package graphtwin_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/fixture"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// TestSplit compares random launches with links one by one: those of the agents follow one another,
// and the others of a row stand behind them from its end on. Nothing else is written.
func TestSplit(t *testing.T) {
	ref, r := fixture.Reference(t), rand.New(rand.NewPCG(5, 62))
	copied, rest := 0, 0
	for i := range testlong.Of(300, 80) {
		a := launches.RandomGraph(r, graphset.Split, r.IntN(3000))
		number := func(i int) int { return int(a.Params[i].Arg.Bits()) }
		columns, weights, delays := device.Of[uint32](a.Params[0].Mem), device.Of[uint32](a.Params[1].Mem),
			a.Params[2].Mem
		offsets, places := device.Of[uint64](a.Params[3].Mem), device.Of[uint32](a.Params[17].Mem)
		toColumns, toWeights, toDelays := slices.Clone(device.Of[uint32](a.Params[18].Mem)),
			slices.Clone(device.Of[uint32](a.Params[19].Mem)), slices.Clone(a.Params[20].Mem)
		for row := range number(13) {
			id := uint32(number(12) + row)
			from := offsets[id]
			links := int(offsets[id+1] - from)
			next, last := int(places[row]), int(places[row])+links-1
			for k := range links {
				at := from + uint64(k)
				to := next
				if c := int(columns[at]); c >= number(14) && c < number(14)+number(15) {
					next++
					copied++
				} else if number(16) == 1 {
					to = last
					last--
					rest++
				} else {
					continue
				}
				toColumns[to] = columns[at] - uint32(number(14))
				if number(5) == 1 {
					toWeights[to] = weights[at]
				}
				counter := [4]uint32{uint32(k/128*32 + k%32), id, 1}
				draw := kernels.Philox([2]uint32{uint32(number(10)), uint32(number(11))}, counter)[k/32%4]
				if delay := number(8) + int(uint64(draw)*uint64(number(9))>>32); number(6) == 1 {
					if toDelays[to] = byte(delay); number(7) == 1 {
						toDelays[to] = delays[at]
					}
				}
			}
		}
		got := onHost(t, ref, graphset.Split, a)
		gotColumns, gotWeights := device.Of[uint32](got[18]), device.Of[uint32](got[19])
		if !slices.Equal(gotColumns, toColumns) || !slices.Equal(gotWeights, toWeights) ||
			!slices.Equal(got[20], toDelays) {
			t.Fatalf("launch %d: the links differ from those one by one", i)
		}
	}
	if copied < 10_000 || rest < 10_000 {
		t.Errorf("%d links of agents and %d of others: too few for a comparison", copied, rest)
	}
}

// TestCount compares random launches with links one by one.
func TestCount(t *testing.T) {
	ref, r := fixture.Reference(t), rand.New(rand.NewPCG(5, 63))
	for i := range testlong.Of(100, 30) {
		a := launches.RandomGraph(r, graphset.Count, r.IntN(3000))
		columns, offsets := device.Of[uint32](a.Params[0].Mem), device.Of[uint64](a.Params[1].Mem)
		low, size := uint32(a.Params[4].Arg.Bits()), uint32(a.Params[5].Arg.Bits())
		var want []uint32
		for row := range len(offsets) - 1 {
			n := uint32(0)
			for _, c := range columns[offsets[row]:offsets[row+1]] {
				if c >= low && c < low+size {
					n++
				}
			}
			want = append(want, n)
		}
		if got := onHost(t, ref, graphset.Count, a); !slices.Equal(device.Of[uint32](got[6]), want) {
			t.Fatalf("launch %d: the numbers differ from those of links one by one", i)
		}
	}
}

// TestPick: a list has each agent whose bit is 1 once.
func TestPick(t *testing.T) {
	ref, r := fixture.Reference(t), rand.New(rand.NewPCG(5, 64))
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
			{Mem: fixture.Poisoned(4 * agents)},
			{Mem: device.Bytes([]uint32{7, 0})},
			{Arg: device.Uint32(1)},
		}}
		got := onHost(t, ref, graphset.Pick, a)
		list, counts := device.Of[uint32](got[2]), device.Of[uint32](got[3])
		if int(counts[1]) != len(want) || counts[0] != 7 {
			t.Fatalf("%d agents: lists of %d, want 7 and %d", agents, counts, len(want))
		}
		if list = slices.Sorted(slices.Values(list[:counts[1]])); !slices.Equal(list, want) {
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
	for range testlong.Of(40, 8) {
		agents, in := 1+r.IntN(40_000), 1+r.IntN(40)
		bits, want := make([]uint32, (agents+31)/32), []uint32{}
		for id := range agents {
			if r.IntN(in) == 0 {
				bits[id/32] |= 1 << (id % 32)
				want = append(want, uint32(id))
			}
		}
		got, err := emulation.Launch(t, program, []emulation.Param{
			{Mem: device.Bytes(bits)},
			{Scalar: true, Bits: uint64(agents)},
			{Mem: fixture.Poisoned(4 * agents)},
			{Mem: device.Bytes([]uint32{0, 7})},
			{Scalar: true},
		}, 32*(1+r.IntN(4)), 1+r.IntN(3))
		if err != nil {
			t.Fatal(err)
		}
		if counts := device.Of[uint32](got[3]); int(counts[0]) != len(want) || counts[1] != 7 {
			t.Fatalf("%d agents: lists of %d, want %d and 7", agents, counts, len(want))
		}
		if list := device.Of[uint32](got[2])[:len(want)]; !slices.Equal(slices.Sorted(slices.Values(list)), want) {
			t.Fatalf("%d agents: the list differs", agents)
		}
	}
}
