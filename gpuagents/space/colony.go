package space

import (
	"context"
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
)

// colony is what a box has besides for agents that die and give birth. Agents in state 0 are empty: they
// are room for births.
type colony struct {
	// flags are words of agents. places are those of the agents in one state in a list, and born those of
	// the agents that give birth. slots are the agents that are empty.
	flags, sums, places, born, slots device.Buffer
	// births are words of agents that give birth, and children the places of their children.
	births, children device.Buffer
}

// beside returns the memory of a colony of n agents.
func (c *colony) beside(n int64) []piece {
	return []piece{
		{&c.flags, 4 * n},
		{&c.sums, 4 * partsOf(n)},
		{&c.places, 4 * (n + 1)},
		{&c.born, 4 * (n + 1)},
		{&c.slots, 4 * n},
		{&c.births, 4 * n},
		{&c.children, 16 * n},
	}
}

// colonyKernels are those of a tick besides those of the sort.
var colonyKernels = []string{
	spaceset.Flags, spaceset.Gather, spaceset.Colony, spaceset.Slots, spaceset.Born, graphset.Rounds,
}

// ticksOf returns the place in a page of the number of ticks of its groups.
func (x *Box) ticksOf() uint32 { return x.layout.Offsets[len(x.layout.Offsets)-1] }

// lostOf returns the place of the births of its groups that found no room.
func (x *Box) lostOf() uint32 { return x.layout.Offsets[len(x.layout.Offsets)-2] }

// ticks returns the number of ticks since the last reset. All pages exist.
func (x *Box) ticks() (uint32, error) {
	var ticks [1]uint32
	at := int64(x.memory.Frame(0))*int64(x.layout.PageBytes) + int64(x.ticksOf())
	err := x.memory.Arena().Read(at, device.Bytes(ticks[:]))
	return ticks[0], fault.Mark(err)
}

// scan puts into the stream what turns words of agents into places, and makes the words 0.
func (x *Box) scan(of, places device.Buffer) error {
	n := x.Len()
	part, warps := partOf(n), 32*partsOf(n) // a warp has a part
	return errors.Join(
		x.put(spaceset.Sum, warps, buffers(of), words(n, part), buffers(x.colony.sums)),
		x.put(spaceset.Start, warps, buffers(of), words(n, part), buffers(x.colony.sums, places)),
	)
}

// list puts into the stream what makes the places of the agents in a state.
func (x *Box) list(state int64) error {
	return errors.Join(
		x.put(spaceset.Flags, x.Len(), x.pages(), words(x.Len(), state), buffers(x.colony.flags)),
		x.scan(x.colony.flags, x.colony.places),
	)
}

// living waits for the stream, and returns how many agents are alive.
func (x *Box) living(ctx context.Context) (int64, error) {
	if err := x.list(spaceset.Alive); err != nil {
		return 0, fault.Mark(errors.Join(err, x.stream.Sync(ctx)))
	}
	if err := x.sync(ctx); err != nil {
		return 0, err
	}
	var n [1]uint32
	err := x.colony.places.Read(4*x.Len(), device.Bytes(n[:]))
	return int64(n[0]), fault.Mark(err)
}

// tickColony makes count ticks, and returns the agents that are empty and alive after the last one. It
// looks at the end of ctx before each tick.
func (x *Box) tickColony(ctx, wait context.Context, count int) ([]uint64, error) {
	tick, err := x.ticks()
	if err != nil {
		return nil, err
	}
	for _, m := range []device.Buffer{x.colony.births, x.counts} { // of an interrupted tick, they are not 0
		if err := m.Fill(0, m.Size(), 0); err != nil {
			return nil, fault.Mark(err)
		}
	}
	n, err := x.living(wait)
	for i := 0; i < count && err == nil; i++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if n > 0 {
			if err := x.generation(n, tick+uint32(i)); err != nil {
				return nil, fault.Mark(errors.Join(err, x.stream.Sync(wait)))
			}
			n, err = x.living(wait)
		}
	}
	if err != nil {
		return nil, err
	}
	groups := x.Len() / int64(x.layout.Agents)
	if err := x.put(graphset.Rounds, groups, buffers(x.memory.Arena(), x.frames),
		[]device.Arg{device.Uint64(uint64(x.layout.PageBytes))}, words(int64(x.layout.Slots), groups,
			int64(x.ticksOf()), int64(tick)+int64(count))); err != nil {
		return nil, fault.Mark(errors.Join(err, x.stream.Sync(wait)))
	}
	return []uint64{uint64(x.Len() - n), uint64(n)}, x.sync(wait)
}

// generation puts into the stream a tick of n agents that are alive, whose places are listed.
func (x *Box) generation(n int64, tick uint32) error {
	c, all, g, v := x.colony, x.Len(), x.grid, x.cell.Value
	s := x.scale()
	spread := x.axes(func(radii float64) float64 { return math.Round(v("spread") * steps / radii) })
	chance := func(p float64) int64 { return int64(min(math.Round(p*steps), math.MaxUint32)) }
	return errors.Join(
		x.put(spaceset.Gather, all, x.pages(), words(all), buffers(c.places, x.positions)),
		x.sort(n),
		x.put(spaceset.Colony, n, x.pages(), buffers(x.sorted), words(n, g.n[0], g.n[1], g.n[2], g.reach,
			bit(x.o.Periodic)), buffers(x.starts), floats(s[0], s[1], s[2]), words(chance(v("birth")),
			chance(v("death")), chance(v("hunger")), int64(v("room")), int64(spread[0]), int64(spread[1]),
			int64(spread[2]), int64(tick), int64(uint32(x.o.Seed)), int64(x.o.Seed>>32)),
			buffers(c.births, c.children)),
		x.list(0), // those who have just died are room
		x.put(spaceset.Slots, all, words(all), buffers(c.places, c.slots)),
		x.scan(c.births, c.born),
		x.put(spaceset.Born, all, x.pages(), words(all), buffers(c.born, c.places, c.slots, c.children),
			words(int64(x.lostOf()), int64(x.layout.Agents))),
	)
}

// settle makes the first agents from..to alive, whose pages have been made, as far as the cell says so.
func (x *Box) settle(ctx context.Context, from, to int64) error {
	var ids []uint32
	for id := from; id < min(to, int64(x.cell.Value("first"))); id++ {
		ids = append(ids, uint32(id))
	}
	return x.enliven(ctx, ids)
}

// enliven makes agents alive.
func (x *Box) enliven(ctx context.Context, ids []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	states := make([]byte, len(ids))
	for i := range states {
		states[i] = spaceset.Alive
	}
	return x.states.Set(ctx, ids, states)
}
