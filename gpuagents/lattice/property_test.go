package lattice

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
)

// TestTranslation: on a periodic grid, steps of agents that are moved by some places are the moved
// steps, to the bit.
func TestTranslation(t *testing.T) {
	for _, g := range []celltest.Grid{
		{Width: 45, Height: 22, Depth: 1, Periodic: true},
		{Width: 16, Height: 9, Depth: 8, Periodic: true, Faces: true},
	} {
		r := rand.New(rand.NewPCG(64, uint64(g.Depth)))
		l := open(t, openDevice(t), celltest.GrayScott(), g, 1, Options{PageBytes: 8192})
		state := make([]float32, 2*g.Len())
		for i := range state {
			state[i] = r.Float32()
		}
		for range 3 {
			dx, dy, dz := r.IntN(g.Width), r.IntN(g.Height), r.IntN(g.Depth)
			moved := func(state []float32) []float32 {
				to := make([]float32, len(state))
				for id := range g.Len() {
					x, y, z := g.Place(id)
					at, _ := g.At((x+dx)%g.Width, (y+dy)%g.Height, (z+dz)%g.Depth)
					copy(to[2*at:], state[2*id:][:2])
				}
				return to
			}
			stepped := func(state []float32) []float32 {
				ok(t, l.Reset(t.Context()), l.Set(t.Context(), all(l), state))
				tick(t, l, 3)
				_, values, err := l.Get(t.Context(), all(l))
				ok(t, err)
				return values
			}
			if !slices.Equal(stepped(moved(state)), moved(stepped(state))) {
				t.Errorf("%+v: steps of agents that are moved by %d, %d, %d differ", g, dx, dy, dz)
			}
		}
	}
}

// TestConservation: agents that share whole grains lose none, whatever the neighbourhood.
func TestConservation(t *testing.T) {
	forEach(t, some(), func(t *testing.T, g celltest.Grid, r *rand.Rand) {
		l := open(t, openDevice(t), celltest.Diffusion(), g, 1, Options{PageBytes: 8192})
		want, values := float32(0), []float32(nil)
		for range g.Len() {
			grains := float32(r.IntN(2) * r.IntN(1000))
			want += grains
			values = append(values, grains, 0)
		}
		ok(t, l.Set(t.Context(), all(l), values))
		spread := false
		for range 4 {
			tick(t, l, 1+r.IntN(5))
			_, now, err := l.Get(t.Context(), all(l))
			ok(t, err)
			sum := float32(0)
			for i := range g.Len() {
				sum += now[2*i]
				spread = spread || now[2*i] != values[2*i]
			}
			if sum != want {
				t.Fatalf("%v grains, want %v", sum, want)
			}
		}
		if !spread && g.Len() > 40 {
			t.Error("no grain has moved")
		}
	})
}

// TestBands: the number of layers that a thread makes, of steps that a launch waits for, and the
// size of pages and groups change no bit.
func TestBands(t *testing.T) {
	g := celltest.Grid{Width: 40, Height: 12, Depth: 9}
	var first []float32
	d := openDevice(t)
	for i, band := range []int64{1, 2, 5, 64} {
		group, pages := []int{1, 8, 20, 40}[i], []int{8192, 65536, 16384, 8192}[i]
		l := open(t, d, celltest.Mix(), g, group, Options{PageBytes: pages, Seed: 5})
		l.band = band
		_, err := l.Tick(t.Context(), t.Context(), 7, 1+i)
		ok(t, err)
		_, values, err := l.Get(t.Context(), all(l))
		ok(t, err)
		if first == nil {
			first = values
		}
		if !slices.Equal(values, first) {
			t.Errorf("bands of %d layers give other agents", band)
		}
	}
}

// TestInvalid: mistakes of a caller are refused, and change nothing.
func TestInvalid(t *testing.T) {
	g, d := celltest.Grid{Width: 8, Height: 2, Depth: 1}, openDevice(t)
	cell := address(t, celltest.GrayScott(), g, 4)
	step, err := Compile(d, cell)
	ok(t, err)
	for what, o := range map[string]Options{
		"no width":          {Height: 2},
		"no height":         {Width: 8},
		"too many agents":   {Width: 1 << 16, Height: 1 << 15},
		"too deep":          {Width: 1 << 10, Height: 1 << 10, Depth: 1 << 11},
		"groups":            {Width: 6, Height: 2},
		"pages":             {Width: 8, Height: 2, PageBytes: 4095},
		"rows beyond pages": {Width: 1024, Height: 2, PageBytes: 4096},
	} {
		if _, err := New(d, nil, cell, step, o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", what, err)
		}
		if Beside(cell, o) != 0 {
			t.Errorf("%s: %d bytes beside the pages", what, Beside(cell, o))
		}
	}
	l := open(t, d, celltest.GrayScott(), g, 4, Options{PageBytes: 4096})
	nan := float32(0)
	nan /= nan
	_, late := l.Tick(t.Context(), t.Context(), 0, 1)
	_, _, far := l.Get(t.Context(), []uint32{16})
	for what, err := range map[string]error{
		"an agent that is not there": l.Set(t.Context(), []uint32{16}, []float32{1, 1}),
		"too few values":             l.Set(t.Context(), []uint32{1}, []float32{1}),
		"no number":                  l.Set(t.Context(), []uint32{1}, []float32{1, nan}),
		"no ticks":                   late,
		"a question":                 far,
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", what, err)
		}
	}
	if slices.Contains(l.Memory().Made(), true) {
		t.Error("a refused call has made a page")
	}
}
