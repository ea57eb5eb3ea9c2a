package space

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// beings are the agents of a colony, as a reader of RFC 0054 would have them.
type beings struct {
	x      *Box
	places [][3]uint32
	alive  []bool
	lost   int
	tick   uint32
}

// newBeings returns the beings of a colony before its first tick.
func newBeings(x *Box) *beings {
	b := &beings{x: x, places: make([][3]uint32, x.Len()), alive: make([]bool, x.Len())}
	for id := range b.places {
		place, _ := spaceset.First(x.o.Seed, uint32(id), 0)
		copy(b.places[id][:len(x.o.Sides)], place[:])
		b.alive[id] = float64(id) < x.cell.Value("first")
	}
	return b
}

// others returns how many agents within the radius of an agent are alive.
func (b *beings) others(id int) (n int) {
	scale := b.x.scale()
	for other, p := range b.places {
		square := float32(0)
		for k := range p {
			step := int64(int32(p[k] - b.places[id][k]))
			if !b.x.o.Periodic {
				step = int64(p[k]) - int64(b.places[id][k])
			}
			way := float32(int32(max(min(step, math.MaxInt32), math.MinInt32))) * float32(scale[k])
			square += float32(way * way)
		}
		if other != id && b.alive[other] && square < 1 {
			n++
		}
	}
	return n
}

// step makes a tick: each agent that is alive dies, gives birth or does neither, by the agents
// before the tick. Then the children take the empty slots, both in the order of their numbers.
func (b *beings) step() {
	v, key := b.x.cell.Value, [2]uint32{uint32(b.x.o.Seed), uint32(b.x.o.Seed >> 32)}
	chance := func(p float64) uint64 { return uint64(min(math.Round(p*(1<<32)), math.MaxUint32)) }
	success := func(draw uint32, chance uint64) bool { return uint64(draw) < chance || chance >= math.MaxUint32 }
	next := slices.Clone(b.alive)
	var children [][3]uint32
	for id, alive := range b.alive {
		if !alive {
			continue
		}
		n := b.others(id)
		draws := kernels.Philox([2]uint32{key[0], ^key[1]}, [4]uint32{b.tick, uint32(id)})
		if success(draws[0], chance(v("death"))+chance(v("hunger"))*uint64(n)) {
			next[id] = false
			continue
		}
		if float64(n) >= v("room") || !success(draws[1], chance(v("birth"))) {
			continue
		}
		ways, child := kernels.Philox([2]uint32{^key[0], ^key[1]}, [4]uint32{b.tick, uint32(id)}), b.places[id]
		for k, side := range b.x.o.Sides {
			most := int64(math.Round(v("spread") * b.x.o.Radius / side * (1 << 32)))
			at := int64(child[k]) + int64(int32(ways[k]))*most>>31
			if !b.x.o.Periodic && at < 0 {
				at = -1 - at
			}
			if !b.x.o.Periodic && at >= 1<<32 {
				at = 1<<33 - 1 - at
			}
			child[k] = uint32(at)
		}
		children = append(children, child)
	}
	for id, alive := range next {
		if !alive && len(children) > 0 {
			b.places[id], next[id], children = children[0], true, children[1:]
		}
	}
	b.alive, b.lost, b.tick = next, b.lost+len(children), b.tick+1
}

// lost returns the births of all groups of a colony that found no room.
func lost(t *testing.T, x *Box) (n int) {
	t.Helper()
	content := make([]byte, x.Layout().PageBytes)
	for page := range x.Memory().Count() {
		if err := x.Memory().Read(t.Context(), uint64(page), content); err != nil {
			t.Fatal(err)
		}
		for _, v := range device.Of[uint32](content[x.lostOf():][:4*x.Layout().Slots]) {
			n += int(v)
		}
	}
	return n
}

// TestColony compares random colonies with beings one by one: in boxes of two and three dimensions,
// of many pages, that grow until there is no room, and that die out.
func TestColony(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(5, 4))
	full, gone, dropped := 0, 0, 0
	for round := range testkit.Of(40, 12) {
		dims, group := 2+round%2, 1+r.IntN(20)
		sides := []float64{8 + 10*r.Float64(), 8 + 10*r.Float64(), 8 + 4*r.Float64()}[:dims]
		agents := group * (1 + r.IntN(600/group))
		cell := cellOf(t, cells.ColonyName, dims, group, params{
			"birth": 0.1 + 0.6*r.Float64(), "death": 0.2 * r.Float64() * float64(r.IntN(2)),
			"first": float64(1 + r.IntN(9)), "hunger": 0.05 * r.Float64() * float64(round%3),
			"room": float64(1 + r.IntN(20)), "spread": r.Float64(),
		})
		x := open(t, d, cell, Options{
			Agents: int64(agents), Sides: sides, Radius: 1 + r.Float64(), Periodic: r.IntN(2) == 0, Seed: r.Uint64(),
			PageBytes: 4096,
		})
		want := newBeings(x)
		compare := func(what string) {
			t.Helper()
			votes, _ := values(t, x)
			for id, alive := range want.alive {
				if (votes[id] == spaceset.Alive) != alive {
					t.Fatalf("round %d, %s: agent %d is in state %d, alive: %v", round, what, id, votes[id], alive)
				}
			}
		}
		compare("at first")
		for want.tick < 40 {
			count := 1 + r.IntN(5)
			for range count {
				want.step()
			}
			tally := tick(t, x, count)
			compare(fmt.Sprint("tick ", want.tick))
			if alive := uint64(len(want.alive)) - tally[0]; alive != tally[1] || tally[1] != countAlive(want.alive) {
				t.Fatalf("round %d, tick %d: the tally is %d", round, want.tick, tally)
			}
			for k := range dims {
				for id, word := range wordsOf(t, x, k) {
					if want.alive[id] && word != want.places[id][k] {
						t.Fatalf("round %d, tick %d: agent %d is at %d on axis %d, want %d", round, want.tick, id,
							word, k, want.places[id][k])
					}
				}
			}
			if r.IntN(3) == 0 { // somebody comes to life, or moves
				id := r.IntN(agents)
				place := make([]float32, dims)
				for k := range place {
					place[k] = float32(sides[k] * r.Float64() * 0.999)
					want.places[id][k] = x.fixed(k, place[k])
				}
				want.alive[id] = true
				if err := x.Set(t.Context(), []uint32{uint32(id)}, place); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := lost(t, x); got != want.lost {
			t.Fatalf("round %d: %d births found no room, want %d", round, got, want.lost)
		}
		switch n := countAlive(want.alive); {
		case n == uint64(agents):
			full++
		case n == 0:
			gone++
		}
		dropped += want.lost
	}
	if full == 0 || dropped < 100 {
		t.Errorf("%d colonies are full, %d are gone, %d births found no room: too few for a comparison", full, gone,
			dropped)
	}
}

// countAlive returns how many are alive.
func countAlive(alive []bool) (n uint64) {
	for _, is := range alive {
		if is {
			n++
		}
	}
	return n
}

// TestColonyMean: without neighbours in reach, a colony whose agents give birth and die at the same
// rates as a branching process grows as that does: by 1 + birth*(1-death) - death in a tick.
func TestColonyMean(t *testing.T) {
	cell := cellOf(t, cells.ColonyName, 2, 100, params{"birth": 0.1, "death": 0.04, "first": 20_000, "room": 1e6})
	x := open(t, openDevice(t), cell, Options{Agents: 100_000, Sides: []float64{4000, 4000}, Radius: 1, Periodic: true})
	got, want := float64(tick(t, x, 15)[1]), 20_000*math.Pow(1+0.1*0.96-0.04, 15)
	if math.Abs(got/want-1) > 0.02 { // the deviation is 0.6 %
		t.Errorf("%v agents after 15 ticks, want about %.0f", got, want)
	}
}
