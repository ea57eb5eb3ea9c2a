package grid

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func openDevice(t testing.TB) device.Device { t.Helper(); return openNamed(t, *opentest.Name) }

func openNamed(t testing.TB, name string) device.Device {
	t.Helper()
	return opentest.Open(t, name, cuda.Options{Poison: true})
}

// lifeOf returns the cell for a group size.
func lifeOf(t testing.TB, group int) *cells.Addressed {
	t.Helper()
	c, err := cells.Address(cells.LifeName, nil, group, 1, 2, cells.Voting{})
	if err != nil {
		t.Fatalf("cells.Address: %v, want no error", err)
	}
	return c
}

// open returns a grid with open pages.
func open(t testing.TB, d device.Device, group int, o Options) *Plane {
	t.Helper()
	p, err := New(d, nil, lifeOf(t, group), o)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	testkit.Close(t, p)
	if err := p.Memory().Open(t.Context(), nil); err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	return p
}

// tick makes n generations.
func tick(t testing.TB, p *Plane, n int) uint64 {
	t.Helper()
	tally, err := p.Tick(t.Context(), t.Context(), n, 7)
	if err != nil {
		t.Fatalf("p.Tick: %v, want no error", err)
	}
	if tally[0]+tally[1] != uint64(p.Len()) {
		t.Fatalf("p.Tick: %d cells of %d", tally, p.Len())
	}
	return tally[1]
}

// states returns all states.
func states(t testing.TB, p *Plane) []byte {
	t.Helper()
	ids := make([]uint32, p.Len())
	for i := range ids {
		ids[i] = uint32(i)
	}
	got, err := p.Get(t.Context(), ids)
	if err != nil {
		t.Fatalf("p.Get: %v, want no error", err)
	}
	return got
}

// set makes cells alive.
func set(t testing.TB, p *Plane, ids []uint32, to []byte) {
	t.Helper()
	if err := p.Set(t.Context(), ids, to); err != nil {
		t.Fatalf("p.Set: %v, want no error", err)
	}
}

// plain makes a generation as its rules are told.
func plain(old []byte, width, height int, periodic bool) []byte {
	next := make([]byte, len(old))
	for y := range height {
		for x := range width {
			n := 0
			for i := range 9 {
				u, v := x+i%3-1, y+i/3-1
				if periodic {
					u, v = (u+width)%width, (v+height)%height
				}
				if i != 4 && u >= 0 && u < width && v >= 0 && v < height {
					n += int(old[v*width+u])
				}
			}
			if n == 3 || n == 2 && old[y*width+x] == 1 {
				next[y*width+x] = 1
			}
		}
	}
	return next
}

// picture returns a grid as text, a line for each row.
func picture(states []byte, width int) string {
	var b strings.Builder
	for i, s := range states {
		b.WriteByte(".#"[s])
		if i%width == width-1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// glider is the cells of a glider that goes down and right, in a grid of a width.
func glider(x, y, width uint32) (ids []uint32) {
	for _, c := range [][2]uint32{{1, 0}, {2, 1}, {0, 2}, {1, 2}, {2, 2}} {
		ids = append(ids, (y+c[1])*width+x+c[0])
	}
	return ids
}

func ones(n int) []byte { return slices.Repeat([]byte{1}, n) }

// TestGlider: a glider is one cell further down and right after four generations, across the edges
// of a periodic grid too, and becomes a block in the corner of another one. These are the pictures.
func TestGlider(t *testing.T) {
	d := openDevice(t)
	for _, width := range []uint32{12, 16, 32} {
		p := open(t, d, 4, Options{Width: int64(width), Height: 10, Periodic: true, PageBytes: 4096})
		set(t, p, glider(0, 0, width), ones(5))
		first := picture(states(t, p), int(width))
		for i := range uint32(200) {
			if alive := tick(t, p, 4); alive != 5 {
				t.Fatalf("generation %d: %d cells are alive, want 5", 4*i, alive)
			}
			want := make([]byte, p.Len())
			for _, id := range glider(0, 0, width) {
				x, y := (id%width+i+1)%width, (id/width+i+1)%10
				want[y*width+x] = 1
			}
			if got := picture(states(t, p), int(width)); got != picture(want, int(width)) {
				t.Fatalf("generation %d:\n%swant\n%s", 4*i+4, got, picture(want, int(width)))
			}
		}
		if !strings.HasPrefix(first, ".#."+strings.Repeat(".", int(width)-3)+"\n..#") {
			t.Errorf("the first generation is\n%s", first)
		}
	}
	p := open(t, d, 4, Options{Width: 8, Height: 6})
	set(t, p, glider(0, 0, 8), ones(5))
	tick(t, p, 40)
	if got, want := picture(states(t, p), 8), strings.Repeat("........\n", 4)+"....##..\n....##..\n"; got != want {
		t.Errorf("the glider in the corner is\n%swant\n%s", got, want)
	}
}

// TestPlane compares random grids with plain ones: by both kernels, over many pages, with ticks of
// all lengths and writes between them.
func TestPlane(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(1, 42))
	for range testkit.Of(60, 15) {
		width := 1 + r.IntN(90)
		if r.IntN(2) == 0 {
			width = 16 * (1 + r.IntN(8))
		}
		height, group := 1+r.IntN(200), width
		for group > 1 && (width%group != 0 || r.IntN(3) == 0) {
			group--
		}
		for width%group != 0 {
			group--
		}
		o := Options{Width: int64(width), Height: int64(height), Periodic: r.IntN(2) == 0, PageBytes: 4096}
		p := open(t, d, group, o)
		if want := width%16 == 0; (p.Kernel() == gridset.LifeRows) != want {
			t.Errorf("%d cells a row, groups of %d: the kernel is %s", width, group, p.Kernel())
		}
		want := make([]byte, width*height)
		for range 4 {
			ids, to := make([]uint32, 1+r.IntN(len(want))), []byte(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(len(want))), append(to, byte(r.IntN(2)))
				want[ids[i]] = to[i]
			}
			set(t, p, ids, to)
			n, alive := 1+r.IntN(20), uint64(0)
			for range n {
				want = plain(want, width, height, o.Periodic)
			}
			for _, s := range want {
				alive += uint64(s)
			}
			if got := tick(t, p, n); got != alive {
				t.Fatalf("%+v: %d cells are alive, want %d", o, got, alive)
			}
			if got := states(t, p); !slices.Equal(got, want) {
				t.Fatalf("%+v, groups of %d, %d ticks:\n%swant\n%s", o, group, n, picture(got, width),
					picture(want, width))
			}
		}
		if err := p.Reset(t.Context()); err != nil {
			t.Fatalf("p.Reset: %v, want no error", err)
		}
		if tick(t, p, 3) != 0 || slices.Contains(states(t, p), 1) {
			t.Fatal("cells are alive after a reset")
		}
	}
}

// TestInvalid: sizes and cells that do not exist are refused, and nothing is done.
func TestInvalid(t *testing.T) {
	d := openDevice(t)
	for _, o := range []Options{
		{},
		{Width: 4},
		{Width: -4, Height: -4},
		{Width: 1 << 16, Height: 1 << 16},
		{Width: 3, Height: 4},
		{Width: 4, Height: 4, PageBytes: 100},
		{Width: 4, Height: 4, PageBytes: -4096},
	} {
		if p, err := New(d, nil, lifeOf(t, 2), o); !errors.Is(err, ErrInvalid) || p != nil {
			t.Errorf("%+v: %v, want an ErrInvalid", o, err)
		}
	}
	gru, err := cells.Address("gru", nil, 2, 1, 2, cells.Voting{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(d, nil, gru, Options{Width: 4, Height: 4}); !errors.Is(err, ErrInvalid) {
		t.Errorf("gru: %v, want an ErrInvalid", err)
	}
	p := open(t, d, 2, Options{Width: 4, Height: 4})
	for _, c := range []struct {
		ids    []uint32
		states []byte
	}{{[]uint32{1, 16}, ones(2)}, {[]uint32{1}, []byte{2}}, {[]uint32{1}, nil}} {
		if err := p.Set(t.Context(), c.ids, c.states); !errors.Is(err, ErrInvalid) {
			t.Errorf("Set %v to %v: %v, want an ErrInvalid", c.ids, c.states, err)
		}
	}
	if _, err := p.Get(t.Context(), []uint32{16}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Get: %v, want an ErrInvalid", err)
	}
	if _, err := p.Tick(t.Context(), t.Context(), 0, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("Tick: %v, want an ErrInvalid", err)
	}
	if slices.Contains(states(t, p), 1) || slices.Contains(p.Memory().Made(), true) {
		t.Error("a refused call has changed the grid")
	}
}
