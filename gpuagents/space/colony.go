package space

import (
	"context"
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// colony is the memory of a box for agents that die and give birth. Agents in state 0 are free:
// they are the slots for births.
type colony struct {
	// flags has a word for each agent. places is a prefix sum: the index of each agent of one state in
	// the list of these agents. born is the same for the agents that give birth. slots are the free
	// agents.
	flags, sums, places, born, slots device.Buffer
	// births has a word for each agent that gives birth, and children the positions of their
	// children.
	births, children device.Buffer
}

func (c *colony) beside(n int64) []sized {
	return []sized{
		{&c.flags, 4 * n},
		{&c.sums, 4 * partsOf(n)},
		{&c.places, 4 * (n + 1)},
		{&c.born, 4 * (n + 1)},
		{&c.slots, 4 * n},
		{&c.births, 4 * n},
		{&c.children, 16 * n},
	}
}

// colonyKernels are the kernels of a tick in addition to the sort.
var colonyKernels = []string{
	spaceset.Flags, spaceset.Gather, spaceset.Colony, spaceset.Slots, spaceset.Born, graphset.Rounds,
}

// ticksOf returns the offset in a page of the number of ticks of its groups.
func (x *Box) ticksOf() uint32 { return x.Layout().Offsets[len(x.Layout().Offsets)-1] }

// lostOf returns the offset in a page of the births of its groups that found no free agent.
func (x *Box) lostOf() uint32 { return x.Layout().Offsets[len(x.Layout().Offsets)-2] }

// scan puts into the stream the prefix sum of words of agents, which also clears the words.
func (x *Box) scan(of, places device.Buffer) error {
	return x.startOf(x.Len(), of, x.colony.sums, places)
}

// list puts into the stream the kernels that number the agents in a state, in places.
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
		return 0, x.Drain(ctx, err)
	}
	if err := x.Sync(ctx); err != nil {
		return 0, err
	}
	var n [1]uint32
	err := x.colony.places.Read(4*x.Len(), device.Bytes(n[:]))
	return int64(n[0]), gpubatch.Mark(err)
}

// tickColony makes count ticks, and returns the agents that are empty and alive after the last one.
// It checks ctx before each tick.
func (x *Box) tickColony(ctx, wait context.Context, count int) ([]uint64, error) {
	tick, err := field.ReadFirst[uint32](x.Field, x.ticksOf())
	if err != nil {
		return nil, err
	}
	if err := x.Clear(x.colony.births, x.counts); err != nil { // of an interrupted tick, they are not 0
		return nil, err
	}
	n, err := x.living(wait)
	for i := 0; i < count && err == nil; i++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if n > 0 {
			if err := x.generation(n, tick+uint32(i)); err != nil {
				return nil, x.Drain(wait, err)
			}
			n, err = x.living(wait)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := x.SetTicks(x.loaded[graphset.Rounds], x.ticksOf(), tick+uint32(count)); err != nil {
		return nil, x.Drain(wait, err)
	}
	return []uint64{uint64(x.Len() - n), uint64(n)}, x.Sync(wait)
}

// generation puts into the stream a tick of n agents that are alive, whose indices are listed.
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
			Slots: device.Ptr(c.slots), Children: children, Lost: x.lostOf(), Group: uint32(x.Layout().Agents),
		}.Args()),
	)
}

// settle makes the agents from..to alive that are below the parameter first. Their pages have just
// been made.
func (x *Box) settle(ctx context.Context, from, to int64) error {
	var ids []uint32
	for id := from; id < min(to, int64(x.cell.Value("first"))); id++ {
		ids = append(ids, uint32(id))
	}
	return x.enliven(ctx, ids)
}

func (x *Box) enliven(ctx context.Context, ids []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	states := make([]byte, len(ids))
	for i := range states {
		states[i] = spaceset.Alive
	}
	return x.Columns.Set(ctx, ids, states)
}
