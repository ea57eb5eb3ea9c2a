package space

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func openDevice(t testing.TB) device.Device { return openSmall(t, 0) }

// openSmall opens the device with so much memory; 0: what it has.
func openSmall(t testing.TB, bytes int64) device.Device {
	t.Helper()
	return opentest.Open(t, *opentest.Name, cuda.Options{Poison: true, MemoryLimit: bytes})
}

// params are the parameters of a cell.
type params map[string]float64

// cellOf returns a cell for a group size and a number of dimensions.
func cellOf(t testing.TB, name string, dims, group int, p params) *cells.Addressed {
	t.Helper()
	c, err := cells.Address(name, p, group, len(cells.BoxFeatures(name, dims)), 2, cells.Voting{})
	if err != nil {
		t.Fatalf("cells.Address: %v, want no error", err)
	}
	return c
}

// open returns a box with open pages.
func open(t testing.TB, d device.Device, cell *cells.Addressed, o Options) *Box {
	t.Helper()
	x, err := New(d, nil, cell, o)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	testkit.Close(t, x)
	if err := x.Memory().Open(t.Context(), nil); err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	return x
}

// tick makes ticks.
func tick(t testing.TB, x *Box, count int) []uint64 {
	t.Helper()
	tally, err := x.Tick(t.Context(), t.Context(), count, 7)
	if err != nil {
		t.Fatalf("x.Tick: %v, want no error", err)
	}
	if len(tally) != 2 || tally[0]+tally[1] != uint64(x.Len()) {
		t.Fatalf("x.Tick: %d agents of %d", tally, x.Len())
	}
	return tally
}

// ids returns all of them.
func ids(x *Box) []uint32 {
	all := make([]uint32, x.Len())
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// values returns the states and values of all agents.
func values(t testing.TB, x *Box) ([]byte, []float32) {
	t.Helper()
	states, v, err := x.Get(t.Context(), ids(x))
	if err != nil {
		t.Fatalf("x.Get: %v, want no error", err)
	}
	return states, v
}

// wordsOf returns a variable of all agents as it is in the pages.
func wordsOf(t testing.TB, x *Box, column int) []uint32 {
	t.Helper()
	w, err := x.Columns.Take(t.Context(), x.Layout().Offsets[1+column], ids(x))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// flock is a plain model of the agents of a box, by RFC 0051: each agent hears all others.
type flock struct {
	o        Options
	cell     *cells.Addressed
	place    [][3]uint32
	velocity [][3]int32
	near     []byte
}

func newFlock(x *Box) *flock {
	f := &flock{o: x.o, cell: x.cell}
	for id := range x.Len() {
		p, v := spaceset.First(x.o.Seed, uint32(id), x.fastest())
		if len(x.o.Sides) == 2 {
			p[2], v[2] = 0, 0
		}
		f.place, f.velocity, f.near = append(f.place, p), append(f.velocity, v), append(f.near, 0)
	}
	return f
}

// float rounds a constant.
func float(v float64) float32 { return float32(v) }

// apart returns the way from agent i to agent j, in steps and in radii, and its square.
func (f *flock) apart(i, j int) (steps [3]int64, to [3]float32, q float32) {
	for k := range len(f.o.Sides) {
		steps[k] = int64(f.place[j][k]) - int64(f.place[i][k])
		if f.o.Periodic && steps[k] < -1<<31 {
			steps[k] += 1 << 32
		} else if f.o.Periodic && steps[k] >= 1<<31 {
			steps[k] -= 1 << 32
		}
		to[k] = float32(steps[k]) * float(f.o.Sides[k]/f.o.Radius/(1<<32)*(1+1.0/(1<<20)))
		q += float32(to[k] * to[k])
	}
	return steps, to, q
}

// heard returns the agents that agent i hears: all that are near, or the nearest of these.
func (f *flock) heard(i int) (all []int) {
	squares := make([]float32, len(f.place))
	for j := range f.place {
		_, _, q := f.apart(i, j)
		if squares[j] = q; i != j && q < 1 && (q != 0 || f.cell.IsBoids()) {
			all = append(all, j)
		}
	}
	if most := f.o.Nearest; most > 0 && len(all) > most {
		slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(squares[a], squares[b]) })
		all = all[:most]
	}
	return all
}

// tick makes a tick.
func (f *flock) tick() {
	v, dims := f.cell.Value, len(f.o.Sides)
	places, velocities := slices.Clone(f.place), slices.Clone(f.velocity)
	for i := range places {
		var way, speed, push [3]int64
		heard := f.heard(i)
		n := len(heard)
		for _, j := range heard {
			steps, to, q := f.apart(i, j)
			w := float32(0)
			if within := float(v("distance") * v("distance")); f.cell.IsBoids() && q < within {
				w = float32(1-float32(q*float(1/(v("distance")*v("distance"))))) * (1 << 24)
			} else if !f.cell.IsBoids() {
				w = spaceset.Sine[0]
				for _, c := range spaceset.Sine[1:] {
					w = float32(w*(q+q-1)) + c
				}
				w *= 1 << 24
			}
			for k := range dims {
				way[k], speed[k] = way[k]+steps[k], speed[k]+int64(f.velocity[j][k])
				push[k] += int64(math.RoundToEven(float64(w * to[k])))
			}
		}
		f.near[i] = byte(min(n, 1))
		var go3 [3]float32
		for k := range dims {
			of, radii := 1/float32(n), f.o.Sides[k]/f.o.Radius
			if !f.cell.IsBoids() {
				if n > 0 {
					by := float32(float32(push[k])*of) * float(-v("repulsion")/(1<<24)*(1<<32)/radii)
					f.walk(places, nil, i, k, by)
				}
				continue
			}
			go3[k] = float32(f.velocity[i][k])
			if n > 0 {
				go3[k] += float32(float32(way[k])*of) * float(v("cohesion")*radii/(1<<32)*(1<<22))
				go3[k] += float32(float32(float32(speed[k])*of)-float32(f.velocity[i][k])) * float(v("alignment"))
				go3[k] -= float32(push[k]) * float(v("separation")/4)
			}
		}
		if !f.cell.IsBoids() {
			continue
		}
		length := float32(go3[0]*go3[0]) + float32(go3[1]*go3[1])
		length += float32(go3[2] * go3[2])
		least, most, scale := float(v("speed_min")*(1<<22)), float(v("speed_max")*(1<<22)), float32(1)
		if length > most*most {
			scale = most / float32(math.Sqrt(float64(length)))
		} else if length > 0 && length < least*least {
			scale = least / float32(math.Sqrt(float64(length)))
		}
		for k := range dims {
			velocities[i][k] = int32(math.RoundToEven(float64(go3[k] * scale)))
			radii := f.o.Sides[k] / f.o.Radius
			f.walk(places, velocities, i, k, float32(velocities[i][k])*float((1<<32)/radii/(1<<22)))
		}
	}
	f.place, f.velocity = places, velocities
}

// walk moves an agent on an axis.
func (f *flock) walk(places [][3]uint32, velocities [][3]int32, i, k int, by float32) {
	to := int64(places[i][k]) + int64(math.RoundToEven(float64(by)))
	switch {
	case f.o.Periodic:
		to &= 1<<32 - 1
	case to >= 0 && to < 1<<32:
	case velocities == nil:
		to = max(0, min(to, 1<<32-1))
	default:
		velocities[i][k] = -velocities[i][k]
		if to = -1 - to; to < 0 { // it is beyond the other wall
			to += 1 << 33
		}
	}
	places[i][k] = uint32(to)
}

// TestBox compares random boxes with agents that look at all others, over many pages, with ticks of
// all numbers and writes between them.
func TestBox(t *testing.T) {
	d, r, met := openDevice(t), rand.New(rand.NewPCG(1, 51)), 0
	for range testkit.Of(120, 40) {
		name, dims := []string{cells.BoidsName, cells.CirclesName}[r.IntN(2)], 2+r.IntN(2)
		group := 1 + r.IntN(20)
		agents := group * (1 + r.IntN(500/group))
		o := Options{
			Agents: int64(agents), Radius: []float64{0.05, 2, 1e4}[r.IntN(3)], Periodic: r.IntN(2) == 0,
			Seed: r.Uint64(), PageBytes: 4096,
		}
		for range dims {
			radii := []float64{4, 4 + 2*r.Float64(), 4 + 20*r.Float64()*r.Float64()}[r.IntN(3)]
			o.Sides = append(o.Sides, o.Radius*radii)
		}
		p := params{"repulsion": r.Float64()}
		if name == cells.BoidsName {
			o.Nearest = []int{0, 1 + r.IntN(8), 1 + r.IntN(spaceset.MostNearest)}[r.IntN(3)]
			p = params{
				"separation": r.Float64() * 10, "distance": r.Float64() * float64(r.IntN(4)) / 3,
				"alignment": r.Float64(), "cohesion": r.Float64() * 0.1, "speed_min": 0.2 * r.Float64(),
				"speed_max": 0.2 + 0.8*r.Float64(),
			}
		}
		x := open(t, d, cellOf(t, name, dims, group, p), o)
		want := newFlock(x)
		for range 4 {
			count := 1 + r.IntN(9)
			for range count {
				want.tick()
			}
			tally := tick(t, x, count)
			states, _ := values(t, x)
			for id, s := range states {
				if met += int(s); s != want.near[id] {
					t.Fatalf("%s, %+v: agent %d has state %d, want %d", name, o, id, s, want.near[id])
				}
				tally[s]--
			}
			if tally[0] != 0 || tally[1] != 0 {
				t.Fatalf("the tally is %d away from the states", tally)
			}
			for column := range x.Width() {
				for id, w := range wordsOf(t, x, column) {
					other := want.place[id][column%dims]
					if column >= dims {
						other = math.Float32bits(float32(want.velocity[id][column-dims]) / (1 << 22))
					}
					if w != other {
						t.Fatalf("%s, %+v: variable %d of agent %d is %d, want %d", name, o, column, id, w, other)
					}
				}
			}
			write(t, r, x, want)
		}
	}
	if met < 1000 {
		t.Errorf("%d agents met another one: too few for a comparison", met)
	}
}

// write sets some agents in a box and a flock.
func write(t *testing.T, r *rand.Rand, x *Box, f *flock) {
	t.Helper()
	var ids []uint32
	var to []float32
	dims := len(x.o.Sides)
	for range r.IntN(20) {
		id := r.Uint32N(uint32(x.Len()))
		ids = append(ids, id)
		for column := range x.Width() {
			v := float32(0.999 * r.Float64() * x.o.Sides[column%dims])
			if column >= dims {
				v = float32((2*r.Float64() - 1) * x.o.Radius)
				f.velocity[id][column-dims] = int32(math.RoundToEven(float64(v) / x.o.Radius * (1 << 22)))
			} else {
				f.place[id][column] = uint32(float64(v) / x.o.Sides[column] * (1 << 32))
			}
			to = append(to, v)
		}
	}
	if err := x.Set(t.Context(), ids, to); err != nil {
		t.Fatalf("x.Set: %v, want no error", err)
	}
}

// TestFirst: agents are where the seed says before their pages are made, and after it.
func TestFirst(t *testing.T) {
	o := Options{Agents: 3000, Sides: []float64{10, 40}, Radius: 1, Seed: 5, PageBytes: 4096}
	x := open(t, openDevice(t), cellOf(t, cells.BoidsName, 2, 10, nil), o)
	_, before := values(t, x)
	if slices.Contains(x.Memory().Made(), true) {
		t.Error("a question has made a page")
	}
	if err := x.Set(t.Context(), []uint32{7}, []float32{1, 2, 0.5, -0.5}); err != nil {
		t.Fatal(err)
	}
	_, after := values(t, x)
	copy(before[4*7:], []float32{1, 2, 0.5, -0.5})
	if !slices.Equal(before, after) {
		t.Error("agents are elsewhere after their pages are made")
	}
	for i, v := range after {
		if side := []float32{10, 40}; i%4 < 2 && (v < 0 || v >= side[i%4]) {
			t.Errorf("value %d is %v", i, v)
		}
	}
	if err := x.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, again := values(t, x)
	copy(again[4*7:], []float32{1, 2, 0.5, -0.5})
	if !slices.Equal(again, before) {
		t.Error("a reset puts agents elsewhere")
	}
}

// TestInvalid: options and values that do not fit are refused, and so are ticks after the end.
func TestInvalid(t *testing.T) {
	d, sides := openDevice(t), []float64{10, 40}
	boids := cellOf(t, cells.BoidsName, 2, 10, nil)
	life, err := cells.Address(cells.LifeName, nil, 10, 1, 2, cells.Voting{})
	if err != nil {
		t.Fatal(err)
	}
	for says, o := range map[string]Options{
		"15 agents in groups of 10":      {Agents: 15, Sides: sides, Radius: 1},
		"0 agents":                       {Sides: sides, Radius: 1},
		"3 sides for 2 dimensions":       {Agents: 10, Sides: []float64{10, 10, 10}, Radius: 1},
		"radius 2.6 in a side of 10":     {Agents: 10, Sides: sides, Radius: 2.6},
		"radius 0 in a side of 10":       {Agents: 10, Sides: sides},
		"radius NaN in a side":           {Agents: 10, Sides: sides, Radius: math.NaN()},
		"radius 1 in a side of NaN":      {Agents: 10, Sides: []float64{math.NaN(), 9}, Radius: 1},
		"radius 1 in a side of -4":       {Agents: 10, Sides: []float64{-4, 9}, Radius: 1},
		"radius 1 in a side of +Inf":     {Agents: 10, Sides: []float64{math.Inf(1), 9}, Radius: 1},
		"radius 1 in a side of 1.1e+06":  {Agents: 10, Sides: []float64{1.1e6, 9}, Radius: 1},
		"pages of 5 bytes: use a multip": {Agents: 10, Sides: sides, Radius: 1, PageBytes: 5},
		"the nearest -1 agents":          {Agents: 10, Sides: sides, Radius: 1, Nearest: -1},
		"the nearest 33 agents":          {Agents: 10, Sides: sides, Radius: 1, Nearest: 33},
	} {
		if _, err := New(d, nil, boids, o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	if _, err := New(d, nil, life, Options{Agents: 10}); !errors.Is(err, ErrInvalid) {
		t.Errorf("life in a box: %v, want an ErrInvalid", err)
	}
	circles := cellOf(t, cells.CirclesName, 2, 10, nil)
	if _, err := New(d, nil, circles, Options{Agents: 10, Sides: sides, Radius: 1, Nearest: 7}); !errors.Is(err,
		ErrInvalid) {
		t.Errorf("the nearest circles: %v, want an ErrInvalid", err)
	}
	x := open(t, d, boids, Options{Agents: 10, Sides: sides, Radius: 1})
	for _, v := range [][]float32{
		{1},
		{10, 1, 0, 0},
		{-1, 1, 0, 0},
		{1, 1, 0, 1.5},
		{1, 1, float32(math.NaN()), 0},
		{float32(math.NaN()), 1, 0, 0},
	} {
		if err := x.Set(t.Context(), []uint32{3}, v); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v, want an ErrInvalid", v, err)
		}
	}
	if err := x.Set(t.Context(), []uint32{10}, []float32{1, 1, 0, 0}); !errors.Is(err, ErrInvalid) {
		t.Errorf("agent 10 of 10: %v, want an ErrInvalid", err)
	}
	if slices.Contains(x.Memory().Made(), true) {
		t.Error("a refused value has made a page")
	}
	if _, err := x.Tick(t.Context(), t.Context(), 0, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("no ticks: %v, want an ErrInvalid", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Tick(ctx, t.Context(), 3, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a tick after the end: %v, want a context.Canceled", err)
	}
}

// TestRoom: a box for whose lists the device has no room is refused, with the cure, and leaves
// nothing.
func TestRoom(t *testing.T) {
	_, err := New(openSmall(t, 8<<20), nil, cellOf(t, cells.BoidsName, 3, 1, nil), Options{
		Agents: 100_000, Sides: []float64{100, 100, 100}, Radius: 2,
	})
	room := (*field.RoomError)(nil)
	if !errors.As(err, &room) || !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(),
		"a box of 100000 agents takes 8902032 bytes") || !strings.Contains(err.Error(), "use fewer agents") {
		t.Errorf("100,000 boids in 8 MiB: %v, want a field.RoomError", err)
	}
}
