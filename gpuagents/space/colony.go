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
	return x.startOf(x.Len(), of, x.colony.sums, places)
}

// list puts into the stream what makes the places of the agents in a state.
func (x *Box) list(state uint32) error {
	return errors.Join(
		x.put(spaceset.Flags, x.Len(), spaceset.FlagsArgs{
			PagesArgs: x.pages(), Agents: x.agents(), State: state, Flags: device.Ptr(x.colony.flags),
		}.Args()),
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
	if err := x.put(graphset.Rounds, groups, graphset.RoundsArgs{
		Pages: device.Ptr(x.memory.Arena()), Frames: device.Ptr(x.frames), PageBytes: uint64(x.layout.PageBytes),
		Slots: uint32(x.layout.Slots), Groups: uint32(groups), Offset: x.ticksOf(), Ticks: tick + uint32(count),
	}.Args()); err != nil {
		return nil, fault.Mark(errors.Join(err, x.stream.Sync(wait)))
	}
	return []uint64{uint64(x.Len() - n), uint64(n)}, x.sync(wait)
}

// generation puts into the stream a tick of n agents that are alive, whose places are listed.
func (x *Box) generation(n int64, tick uint32) error {
	c, all, agents, v := x.colony, x.Len(), x.agents(), x.cell.Value
	spread := x.axes(func(radii float64) float64 { return math.Round(v("spread") * steps / radii) })
	chance := func(p float64) uint32 { return uint32(min(math.Round(p*steps), math.MaxUint32)) }
	places, children := device.Ptr(c.places), device.Ptr(c.children)
	return errors.Join(
		x.put(spaceset.Gather, all, spaceset.GatherArgs{
			PagesArgs: x.pages(), Agents: agents, Places: places, Positions: device.Ptr(x.positions),
		}.Args()),
		x.sort(n),
		x.put(spaceset.Colony, n, spaceset.ColonyArgs{
			PagesArgs: x.pages(), Sorted: device.Ptr(x.sorted), NearArgs: x.nearby(n), Birth: chance(v("birth")),
			Death: chance(v("death")), Hunger: chance(v("hunger")), Room: uint32(v("room")),
			Mx: uint32(int64(spread[0])), My: uint32(int64(spread[1])), Mz: uint32(int64(spread[2])), Tick: tick,
			Key0: uint32(x.o.Seed), Key1: uint32(x.o.Seed >> 32), Births: device.Ptr(c.births), Children: children,
		}.Args()),
		x.list(0), // those who have just died are room
		x.put(spaceset.Slots, all, spaceset.SlotsArgs{
			Agents: agents, Places: places, Slots: device.Ptr(c.slots),
		}.Args()),
		x.scan(c.births, c.born),
		x.put(spaceset.Born, all, spaceset.BornArgs{
			PagesArgs: x.pages(), Agents: agents, Births: device.Ptr(c.born), Empty: places,
			Slots: device.Ptr(c.slots), Children: children, Lost: x.lostOf(), Group: uint32(x.layout.Agents),
		}.Args()),
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
