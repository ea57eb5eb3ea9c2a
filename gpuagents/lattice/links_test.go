package lattice

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// openLinks returns agents on a graph, with open pages.
func openLinks(t *testing.T, d device.Device, group int, o Options) *Lattice {
	t.Helper()
	of := celltest.Opinion()
	of.Agents = group
	cell, err := cells.AddressLattice(of)
	ok(t, err)
	step, err := Compile(d, cell)
	ok(t, err)
	l, err := New(d, nil, cell, step, o)
	ok(t, err)
	t.Cleanup(func() { ok(t, l.Close()) })
	ok(t, l.Memory().Open(t.Context(), nil))
	return l
}

// rowsOf returns the links of a lattice as they are on the device.
func rowsOf(t *testing.T, l *Lattice) *edges.Rows {
	t.Helper()
	if l.o.Links.Rows != nil {
		return l.o.Links.Rows
	}
	r := &edges.Rows{Columns: make([]uint32, l.Len()*int64(l.wires.Degree))}
	for i := range l.Len() + 1 {
		r.Offsets = append(r.Offsets, uint64(i)*uint64(l.wires.Degree))
	}
	ok(t, l.Sync(t.Context()), l.wires.Columns.Read(0, device.Bytes(r.Columns)))
	return r
}

// TestOpinion compares opinions on graphs of all kinds with the plain twin, to the bit: rows of a
// list with weights and without, some of them empty and one long, and generated links.
func TestOpinion(t *testing.T) {
	const agents, seed = 1500, 0xABCDEF0123456789
	r := rand.New(rand.NewPCG(64, 3))
	d := openDevice(t)
	rows := &edges.Rows{Offsets: []uint64{0}}
	for id := range agents {
		n := r.IntN(6)
		if id == 77 {
			n = 900
		}
		for range n {
			rows.Columns = append(rows.Columns, r.Uint32N(agents))
			rows.Weights = append(rows.Weights, int32(r.IntN(1<<20)-1<<19))
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	for name, links := range map[string]edges.Links{
		"weights": {Rows: rows},
		"list":    {Rows: &edges.Rows{Offsets: rows.Offsets, Columns: rows.Columns}},
		"random":  {Degree: 7, Rewire: 1, Seed: 3},
		"ring":    {Degree: 6, Rewire: 0.1, Seed: 4},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLinks(t, d, 25, Options{Agents: agents, Links: &links, Seed: seed, PageBytes: 4096})
			now, values := make([]celltest.OpinionAgent, agents), []float32(nil)
			for i := range now {
				now[i] = celltest.OpinionAgent{
					Opinion: r.Float32()*2 - 1, Loud: uint8(r.IntN(2)), Heard: r.Uint32N(1000),
				}
				// in alphabetical order
				values = append(values, float32(now[i].Heard), float32(now[i].Loud), now[i].Opinion)
			}
			ok(t, l.Set(t.Context(), all(l), values))
			on, made := rowsOf(t, l), uint64(0)
			for _, n := range []int{1, 2, 4} {
				tally, want := tick(t, l, n), []uint64{0, 0}
				for range n {
					now = celltest.StepOpinion(on, now, seed, made)
					made++
				}
				for _, a := range now {
					want[a.Loud]++
				}
				if !slices.Equal(tally, want) {
					t.Errorf("a tick counts %v, want %v", tally, want)
				}
			}
			_, got, err := l.Get(t.Context(), all(l))
			ok(t, err)
			for i, a := range now {
				if want := []float32{float32(a.Heard), float32(a.Loud), a.Opinion}; !slices.Equal(got[3*i:][:3], want) {
					t.Fatalf("agent %d has %v, the twin %v", i, got[3*i:][:3], want)
				}
			}
			counted(t, l, made)
		})
	}
}
