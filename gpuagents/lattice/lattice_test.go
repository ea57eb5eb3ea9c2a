package lattice

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
)

// grids are of all forms: two and three dimensions, with edges and without, whole rows in a page
// and more, and sides of one and two agents, whose neighbours are there several times.
var grids = []celltest.Grid{
	{Width: 37, Height: 21, Depth: 1, Periodic: true},
	{Width: 160, Height: 9, Depth: 1},
	{Width: 64, Height: 50, Depth: 1, Periodic: true, Faces: true},
	{Width: 5, Height: 71, Depth: 1, Faces: true},
	{Width: 1, Height: 40, Depth: 1, Periodic: true},
	{Width: 40, Height: 1, Depth: 1},
	{Width: 1, Height: 1, Depth: 1},
	{Width: 2, Height: 2, Depth: 1, Periodic: true},
	{Width: 33, Height: 10, Depth: 12, Periodic: true},
	{Width: 12, Height: 11, Depth: 10},
	{Width: 34, Height: 6, Depth: 7, Periodic: true, Faces: true},
	{Width: 9, Height: 5, Depth: 20, Faces: true},
	{Width: 2, Height: 3, Depth: 2, Periodic: true},
	{Width: 1, Height: 1, Depth: 5},
}

// forEach runs a test on some grids: a step is compiled for each form.
func forEach(t *testing.T, grids []celltest.Grid, run func(t *testing.T, g celltest.Grid, r *rand.Rand)) {
	for i, g := range grids {
		t.Run(fmt.Sprintf("%+v", g), func(t *testing.T) { run(t, g, rand.New(rand.NewPCG(uint64(i), 64))) })
	}
}

// some returns grids with a form for each number of dimensions.
func some() (all []celltest.Grid) {
	for _, g := range grids {
		if g.Depth == 1 && g.Periodic && !g.Faces || g.Depth > 1 && !g.Periodic && !g.Faces {
			all = append(all, g)
		}
	}
	return all
}

// groupOf returns a size of groups that divides the width.
func groupOf(r *rand.Rand, width int) int {
	for {
		if n := 1 + r.IntN(width); width%n == 0 {
			return n
		}
	}
}

// same compares states of agents.
func same(t *testing.T, got, want []byte) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("agent %d is %d, want %d", i, got[i], want[i])
		}
	}
}

// counted checks the number of ticks that all groups have counted.
func counted(t *testing.T, l *Lattice, want uint64) {
	t.Helper()
	if n, err := l.Ticks(); n != want || err != nil {
		t.Errorf("%d ticks, %v, want %d", n, err, want)
	}
	page, groups := make([]byte, l.Layout().PageBytes), int(l.Len())/l.Layout().Agents
	for first := 0; first < groups; first += l.Layout().Slots {
		ok(t, l.Memory().Read(t.Context(), uint64(first/l.Layout().Slots), page))
		of := device.Of[uint64](page[l.Layout().Offsets[len(l.Layout().Vars)-1]:])
		for slot := range min(l.Layout().Slots, groups-first) {
			if of[slot] != want {
				t.Fatalf("group %d has counted %d ticks, want %d", first+slot, of[slot], want)
			}
		}
	}
}

// TestGrayScott compares two substances with the plain twin, to the bit.
func TestGrayScott(t *testing.T) {
	forEach(t, some(), func(t *testing.T, g celltest.Grid, r *rand.Rand) {
		l := open(t, openDevice(t), celltest.GrayScott(), g, groupOf(r, g.Width), Options{PageBytes: 8192})
		l.band = 1 + r.Int64N(9)
		used, v := make([]float32, g.Len()), make([]float32, g.Len())
		var values []float32
		for i := range used {
			used[i], v[i] = r.Float32(), r.Float32()
			values = append(values, used[i], v[i])
		}
		ok(t, l.Set(t.Context(), all(l), values))
		for _, n := range []int{1, 4, 1} {
			tick(t, l, n)
			for range n {
				used, v = g.StepGrayScott(used, v)
			}
		}
		_, got, err := l.Get(t.Context(), all(l))
		ok(t, err)
		for i := range used {
			if got[2*i] != used[i] || got[2*i+1] != v[i] {
				t.Fatalf("agent %d has %v and %v, the twin %v and %v", i, got[2*i], got[2*i+1], used[i], v[i])
			}
		}
	})
}

// TestLife3D compares Life of three dimensions with the plain twin, and what a tick counts.
func TestLife3D(t *testing.T) {
	forEach(t, some(), func(t *testing.T, g celltest.Grid, r *rand.Rand) {
		l := open(t, openDevice(t), celltest.Life3D(), g, groupOf(r, g.Width), Options{PageBytes: 4096})
		l.band = 1 + r.Int64N(9)
		alive := make([]byte, g.Len())
		var values []float32
		for i := range alive {
			alive[i] = byte(r.IntN(4) / 3)
			values = append(values, float32(alive[i]))
		}
		ok(t, l.Set(t.Context(), all(l), values))
		for _, n := range []int{1, 2, 3} {
			tally, want := tick(t, l, n), []uint64{0, 0}
			for range n {
				alive = g.StepLife3D(alive)
			}
			for _, a := range alive {
				want[a]++
			}
			if !slices.Equal(tally, want) {
				t.Errorf("a tick counts %v, want %v", tally, want)
			}
		}
		got, _, err := l.Get(t.Context(), all(l))
		ok(t, err)
		same(t, got, alive)
	})
}

// TestFire compares a forest, which draws, with the plain twin.
func TestFire(t *testing.T) {
	const seed = 0xFEDCBA9876543210
	forEach(t, some(), func(t *testing.T, g celltest.Grid, r *rand.Rand) {
		l := open(t, openDevice(t), celltest.Fire(), g, groupOf(r, g.Width), Options{PageBytes: 4096, Seed: seed})
		l.band = 1 + r.Int64N(9)
		state := make([]byte, g.Len())
		made := uint64(0)
		for _, n := range []int{2, 1, 5, 1} {
			tally, want := tick(t, l, n), []uint64{0, 0, 0}
			for range n {
				state = g.StepFire(state, seed, made)
				made++
			}
			for _, s := range state {
				want[s]++
			}
			if !slices.Equal(tally, want) {
				t.Errorf("a tick counts %v, want %v", tally, want)
			}
		}
		got, _, err := l.Get(t.Context(), all(l))
		ok(t, err)
		same(t, got, state)
		counted(t, l, made)
	})
}

// TestMix compares a cell with a variable of each type and all reductions with its twin.
func TestMix(t *testing.T) {
	const seed = 77 << 40
	forEach(t, grids, func(t *testing.T, g celltest.Grid, r *rand.Rand) {
		l := open(t, openDevice(t), celltest.Mix(), g, groupOf(r, g.Width), Options{PageBytes: 8192, Seed: seed})
		l.band = 1 + r.Int64N(9)
		agents := make([]celltest.MixAgent, g.Len())
		var values []float32
		for i := range agents {
			a := &agents[i]
			// values that a float32 and a bf16 hold
			a.A, a.B, a.C = byte(r.Uint32()), r.Uint32()>>8<<8, r.Uint64()>>40<<40
			a.D, a.E = r.Float32()-0.5, float32(r.IntN(256))/64-2
			values = append(values, float32(a.A), float32(a.B), float32(a.C), a.D, a.E)
		}
		ok(t, l.Set(t.Context(), all(l), values))
		made := uint64(0)
		for _, n := range []int{1, 2, 3} {
			tally, want := tick(t, l, n), make([]uint64, 16)
			for range n {
				agents = g.StepMix(agents, seed, made)
				made++
			}
			for _, a := range agents {
				want[min(a.A, 15)]++
			}
			if !slices.Equal(tally, want) {
				t.Errorf("a tick counts %v, want %v", tally, want)
			}
			votes, got, err := l.Get(t.Context(), all(l))
			ok(t, err)
			for i, a := range agents {
				want := []float32{float32(a.A), float32(a.B), float32(a.C), a.D, a.E}
				if !slices.Equal(got[5*i:][:5], want) || votes[i] != min(a.A, 15) {
					t.Fatalf("tick %d: agent %d has %v, the twin %v", made, i, got[5*i:][:5], want)
				}
			}
		}
	})
}
