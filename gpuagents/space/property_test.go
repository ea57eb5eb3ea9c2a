package space

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// putWords writes a variable of all agents as it is in the pages.
func putWords(t testing.TB, x *Box, column int, w []uint32) {
	t.Helper()
	if err := x.Columns.Put(t.Context(), x.Layout().Offsets[1+column], ids(x), w); err != nil {
		t.Fatal(err)
	}
}

// TestTranslation: agents that are moved together in a periodic box stay the same to each other, to
// the bit, and so do agents whose axes are exchanged.
func TestTranslation(t *testing.T) {
	if testing.Short() {
		t.Skip("many boxes are slow under the race detector")
	}
	d := openDevice(t)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{cells.BoidsName, cells.CirclesName}).Draw(rt, "cell")
		o := Options{
			Agents: 100, Sides: []float64{8, 8, 8}, Radius: 2, Periodic: true, Seed: rapid.Uint64().Draw(rt, "seed"),
			PageBytes: 4096,
		}
		if name == cells.BoidsName {
			o.Nearest = rapid.IntRange(0, 32).Draw(rt, "nearest")
		}
		by := [3]uint32(rapid.SliceOfN(rapid.Uint32(), 3, 3).Draw(rt, "by"))
		turn := rapid.IntRange(0, 2).Draw(rt, "turn")
		if o.Nearest > 0 { // a square that rounds another way may choose another agent
			turn = 0
		}
		cell := cellOf(t, name, 3, 10, nil)
		x, y := open(t, d, cell, o), open(t, d, cell, o)
		tick(t, x, 1)
		tick(t, y, 1)
		for column := range x.Width() {
			w := wordsOf(t, x, column)
			if column < 3 {
				for i := range w {
					w[i] += by[column]
				}
			}
			putWords(t, y, column/3*3+(column%3+turn)%3, w)
		}
		tick(t, x, 5)
		tick(t, y, 5)
		for column := range x.Width() {
			w := wordsOf(t, x, column)
			if column < 3 {
				for i := range w {
					w[i] += by[column]
				}
			}
			got := wordsOf(t, y, column/3*3+(column%3+turn)%3)
			for i := range w {
				// Squares of three axes are added in their order, which may round another way.
				diff := int32(got[i] - w[i])
				if diff != 0 && (turn == 0 || column < 3 && (diff < -4096 || diff > 4096)) {
					rt.Fatalf("variable %d of agent %d is %d away", column, i, diff)
				}
			}
		}
	})
}

// TestMomentum: agents that are all near each other push each other as much as they are pushed. The
// sum of their moves is 0, and the sum of their velocities stays, except for rounding of float32.
func TestMomentum(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(3, 51))
	for _, name := range []string{cells.BoidsName, cells.CirclesName} {
		p := params{"repulsion": 0.1}
		if name == cells.BoidsName { // no speed is limited
			p = params{"separation": 0.01, "distance": 1, "cohesion": 0.01, "speed_min": 0, "speed_max": 1}
		}
		const agents = 50
		x := open(t, d, cellOf(t, name, 3, 10, p), Options{
			Agents: agents, Sides: []float64{16, 16, 16}, Radius: 4, PageBytes: 4096,
		})
		var to []float32
		for range agents {
			for column := range x.Width() {
				if v := r.Float64(); column < 3 {
					to = append(to, float32(7+v)) // in a cube whose diagonal is less than the radius
				} else {
					to = append(to, float32(0.2*v-0.05))
				}
			}
		}
		if err := x.Set(t.Context(), ids(x), to); err != nil {
			t.Fatal(err)
		}
		sums := func() (place [3]int64, speed [3]float64) {
			for column := range x.Width() {
				for _, w := range wordsOf(t, x, column) {
					if column < 3 {
						place[column] += int64(w)
					} else {
						speed[column-3] += float64(math.Float32frombits(w)) * (1 << 22)
					}
				}
			}
			return place, speed
		}
		place, speed := sums()
		for range 3 {
			if tally := tick(t, x, 1); tally[1] != agents {
				t.Fatalf("%s: %d agents are near another one, want all", name, tally[1])
			}
			next, faster := sums()
			for k := range 3 {
				if name == cells.CirclesName && max(next[k]-place[k], place[k]-next[k]) > agents*128 {
					t.Errorf("circles: the sum of places on axis %d moves by %d", k, next[k]-place[k])
				}
				if math.Abs(faster[k]-speed[k]) > agents*32 {
					t.Errorf("boids: the sum of velocities on axis %d changes by %v", k, faster[k]-speed[k])
				}
			}
			place, speed = next, faster
		}
	}
}

// TestInside: no agent leaves a box, however fast it is, and walls turn boids.
func TestInside(t *testing.T) {
	if testing.Short() {
		t.Skip("many boxes are slow under the race detector")
	}
	d := openDevice(t)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{cells.BoidsName, cells.CirclesName}).Draw(rt, "cell")
		dims := rapid.IntRange(2, 3).Draw(rt, "dims")
		p := params{"repulsion": 1}
		if name == cells.BoidsName {
			p = params{"separation": 100, "distance": 1, "cohesion": 1, "speed_min": 1, "speed_max": 1}
		}
		sides := []float64{0.3, 7, 1e3}[:dims]
		x := open(t, d, cellOf(t, name, dims, 1, p), Options{
			Agents: 300, Sides: sides, Radius: 0.07, Periodic: rapid.Bool().Draw(rt, "periodic"),
			Seed: rapid.Uint64().Draw(rt, "seed"), PageBytes: 4096,
		})
		tick(t, x, rapid.IntRange(1, 20).Draw(rt, "ticks"))
		_, v := values(t, x)
		for i, at := range v {
			if k := i % x.Width(); k < dims && (at < 0 || float64(at) >= sides[k]) || at != at {
				rt.Fatalf("agent %d has %v in column %d", i/x.Width(), at, k)
			}
		}
	})
}

// TestNearest: agents that hear the nearest of a number that nobody has within the radius move as
// agents that hear all of them, to the bit. Agents that hear one other do not.
func TestNearest(t *testing.T) {
	d := openDevice(t)
	run := func(nearest int) (all []float32) {
		x := open(t, d, cellOf(t, cells.BoidsName, 3, 10, nil), Options{
			Agents: 400, Sides: []float64{20, 20, 20}, Radius: 4, Seed: 3, Nearest: nearest, PageBytes: 4096,
		})
		tick(t, x, 30) // with 8 others within the radius, on average
		_, all = values(t, x)
		return all
	}
	all := run(0)
	if !slices.Equal(run(32), all) {
		t.Error("agents that hear the nearest 32 move otherwise than agents that hear all")
	}
	if slices.Equal(run(1), all) {
		t.Error("agents that hear the nearest one move as agents that hear all")
	}
}

// TestTopological: agents that hear the nearest others steer by who is near, however far that is. A
// flock that is spread to twice the size, within the radius, keeps its directions without
// separation and cohesion, to the bit, while one whose agents hear all within the radius does not.
func TestTopological(t *testing.T) {
	d := openDevice(t)
	for nearest, same := range map[int]bool{7: true, 0: false} {
		var directions [2][]float32
		for i, wide := range []float32{1, 2} {
			r := rand.New(rand.NewPCG(8, 51))
			x := open(t, d, cellOf(t, cells.BoidsName, 2, 10, params{"separation": 0, "cohesion": 0}), Options{
				Agents: 100, Sides: []float64{64, 64}, Radius: 8, Nearest: nearest, PageBytes: 4096,
			})
			var to []float32
			for range x.Len() {
				to = append(to, 20+wide*10*r.Float32(), 20+wide*10*r.Float32(), r.Float32()-0.5, r.Float32()-0.5)
			}
			ok(t, x.Set(t.Context(), ids(x), to))
			tick(t, x, 1)
			_, v := values(t, x)
			for k := 0; k < len(v); k += 4 {
				directions[i] = append(directions[i], v[k+2:k+4]...)
			}
		}
		if slices.Equal(directions[0], directions[1]) != same {
			t.Errorf("nearest %d: the directions of the wide flock are the same: %v, want %v", nearest, !same, same)
		}
	}
}

// TestFlock: boids that begin in all directions fly in one. The length of their mean velocity, as a
// part of their mean speed, is about 0 at first, and near 1 then. Without alignment it stays low.
// They also do so if they hear the nearest seven alone.
func TestFlock(t *testing.T) {
	d := openDevice(t)
	for _, c := range []struct {
		alignment float64
		nearest   int
		want      [2]float64
	}{{0.2, 0, [2]float64{0.9, 1}}, {0.2, 7, [2]float64{0.9, 1}}, {0, 0, [2]float64{0, 0.5}}} {
		alignment, want := c.alignment, c.want
		x := open(t, d, cellOf(t, cells.BoidsName, 2, 10, params{"alignment": alignment, "cohesion": 0}), Options{
			Agents: 200, Sides: []float64{20, 20}, Radius: 4, Nearest: c.nearest, Periodic: true, Seed: 1,
		})
		order := func() float64 {
			var vx, vy, speed float64
			_, v := values(t, x)
			for i := 0; i < len(v); i += 4 {
				vx, vy = vx+float64(v[i+2]), vy+float64(v[i+3])
				speed += math.Hypot(float64(v[i+2]), float64(v[i+3]))
			}
			return math.Hypot(vx, vy) / speed
		}
		if first := order(); first > 0.2 {
			t.Errorf("the order is %v at first", first)
		}
		tick(t, x, 400)
		if got := order(); got < want[0] || got > want[1] {
			t.Errorf("with alignment %v, nearest %d, the order is %v, want %v", alignment, c.nearest, got, want)
		}
	}
}

// TestCircles: two circles end at half a radius from each other, wherever they begin within it.
func TestCircles(t *testing.T) {
	d := openDevice(t)
	for _, from := range []float64{0.1, 0.5, 1.2, 1.9} {
		x := open(t, d, cellOf(t, cells.CirclesName, 2, 1, nil), Options{
			Agents: 2, Sides: []float64{8, 8}, Radius: 2, Periodic: true,
		})
		if err := x.Set(t.Context(), []uint32{0, 1}, []float32{7.5, 4, float32(math.Mod(7.5+from, 8)), 4}); err != nil {
			t.Fatal(err)
		}
		tick(t, x, 1000)
		_, v := values(t, x)
		if apart := math.Mod(float64(v[2]-v[0])+8, 8); math.Abs(apart-1) > 1e-3 || v[1] != 4 || v[3] != 4 {
			t.Errorf("from %v, they are %v apart, want 1", from, v)
		}
	}
}

// TestDrift: the mean way of circles in a tick, which FLAME GPU's authors call drift, falls as they
// arrange themselves. It rises first, when they find each other.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("many boxes are slow under the race detector")
	}
	x := open(t, openDevice(t), cellOf(t, cells.CirclesName, 3, 1, nil), Options{
		Agents: 512, Sides: []float64{8, 8, 8}, Radius: 2, Periodic: true,
	})
	var last []float32
	drift := func() (sum float64) {
		_, before := values(t, x)
		tick(t, x, 1)
		_, v := values(t, x)
		for i := range v {
			way := math.Abs(float64(v[i] - before[i]))
			sum += min(way, 8-way)
		}
		if slices.Equal(v, last) {
			t.Error("nobody moves")
		}
		last = v
		return sum
	}
	first := drift()
	tick(t, x, 600)
	if now := drift(); now > first/10 {
		t.Errorf("the drift is %v at first and %v after 600 ticks", first, now)
	}
}
