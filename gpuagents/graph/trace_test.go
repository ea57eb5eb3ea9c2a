package graph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// TestTrace: a picture has the spikes of the last ticks that were recorded, as the states after
// each of them say, in rows of neurons, which are merged where few cells are asked for. Ticks that
// nobody has asked for are not in it.
func TestTrace(t *testing.T) {
	r, d := rand.New(rand.NewPCG(3, 4)), openDevice(t)
	for _, agents := range []int64{2, 100, 3000, 70_000} {
		cell := neuronsOf(t, cells.IzhikevichName, 2, map[string]float64{"noise": 25})
		n := open(t, d, cell, Options{Agents: agents, Links: edges.Links{Degree: 1, Rewire: 1}, PageBytes: 64 << 10})
		if p, err := n.Picture(t.Context(), 1000); err != nil || slices.Contains(p.States, raster.Whole) {
			t.Fatalf("the first picture: %v, %v, want no value", p, err)
		}
		var all [][]byte // the states after each tick that is recorded
		spikes := 0
		for round := range 4 {
			if round == 2 { // ticks that are not recorded, and so the picture begins anew
				n.trace.left = 0
				tick(t, n, 3)
				all = nil
			}
			if _, err := n.Picture(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			for range 1 + r.IntN(min(170, 400_000/int(agents))) {
				tick(t, n, 1)
				all = append(all, states(t, n))
			}
			for _, most := range []int{1, 300, 5000, raster.MaxCells} {
				p, err := n.Picture(t.Context(), most)
				if err != nil {
					t.Fatal(err)
				}
				ticks, err := n.Ticks(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(p.Mean) > most || p.Columns != min(most, traceTicks) || p.Tick != int64(ticks) {
					t.Fatalf("%d cells of %d in %d columns, the last tick %d of %d", len(p.Mean), most, p.Columns,
						p.Tick, ticks)
				}
				for i, got := range p.Mean {
					from := i / p.Columns * p.Per
					k := len(all) - p.Columns + i%p.Columns
					want, state := float32(0), uint8(raster.NoValue)
					if k >= 0 {
						state = raster.Whole
						for _, s := range all[k][from:min(from+p.Per, int(agents))] {
							want += float32(s)
						}
					}
					if got != want || p.States[i] != state {
						t.Fatalf("%d agents, cell %d of %d: %v in state %d, want %v in %d", agents, i, len(p.Mean), got,
							p.States[i], want, state)
					}
					spikes += int(got)
				}
			}
		}
		if spikes == 0 {
			t.Errorf("%d agents: no spikes", agents)
		}
		if err := n.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err := n.Picture(t.Context(), 1000); err != nil || p.Tick != 0 ||
			slices.Contains(p.States, raster.Whole) {
			t.Errorf("after a reset: %v, %v, want no value", p, err)
		}
	}
}

// TestTraceQuota: a look has a number of ticks recorded, and no more.
func TestTraceQuota(t *testing.T) {
	n := open(t, openDevice(t), neuronsOf(t, cells.LIFName, 2, nil), Options{Agents: 4, Links: edges.Links{Degree: 2}})
	tick(t, n, 5)
	if n.trace != nil {
		t.Fatal("ticks are recorded before the first look")
	}
	if _, err := n.Picture(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	tick(t, n, 300)
	if p, err := n.Picture(t.Context(), raster.MaxCells); err != nil || p.Tick != 5+traceTicks ||
		slices.Contains(p.States, raster.NoValue) {
		t.Errorf("the last tick is %d, %v, want 256 ticks up to 261", p.Tick, err)
	}
}
