package graph

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// sharer makes ticks of a network on several devices.
type sharer interface {
	// devices returns the devices, the one with the pages first.
	devices() []device.Device
	// gains reports whether they make so many ticks faster than the first one. It changes no bit.
	gains(count int) bool
	// tick makes ticks from number tick on, and returns the agents of the further devices in each
	// state after the last one. The first device has nothing to do before it. Its further arguments
	// are those of Network.Tick.
	tick(ctx, wait context.Context, tick uint32, count, most int) (tally []uint64, err error)
}

// crew is the devices that make ticks of a network together. The first has the pages.
type crew struct {
	n     *Network
	seats []*team.Seat
	marks [2]device.Event
}

// openCrew opens the seats of a team, each with the bytes that a device has if so many make ticks;
// 0: so many cannot. A nil crew says that one device makes all ticks.
func (n *Network) openCrew(bytes func(devices int) int64) (*crew, error) {
	o := &n.o
	o.Members = o.Members[:min(len(o.Members), max(0, o.Devices-1))]
	for len(o.Members) > 0 && bytes(len(o.Members)+1) == 0 {
		o.Members = o.Members[:len(o.Members)-1]
	}
	if len(o.Members) == 0 {
		return nil, nil
	}
	seats, err := team.Open(o.Members, bytes)
	if err != nil || len(seats) == 0 {
		return nil, err
	}
	// All streams end before memory is released that one of them uses.
	n.close = append([]func() error{func() error { return team.Stop(seats) }}, n.close...)
	n.close = append(n.close, func() error { return team.Close(seats) })
	first, err := team.First(n.dev, n.stream, nil)
	if err != nil {
		return nil, err
	}
	n.close = append(n.close, first.Close)
	c := &crew{n: n, seats: append([]*team.Seat{first}, seats...)}
	for i := range c.marks {
		if c.marks[i], err = n.dev.NewEvent(); err != nil {
			return nil, fault.Mark(err)
		}
		n.close = append(n.close, c.marks[i].Close)
	}
	return c, n.sync(context.Background()) // the links are generated
}

// devices implements sharer.
func (c *crew) devices() []device.Device { return team.Devices(c.seats) }

// everyone returns all seats.
func (c *crew) everyone(int) []*team.Seat { return c.seats }

// sync waits for all work of the streams.
func (c *crew) sync(ctx context.Context) error {
	var errs []error
	for _, s := range c.seats {
		errs = append(errs, s.Fail(s.Stream.Sync(ctx)))
	}
	return errors.Join(errs...)
}

// each puts ticks into the streams: exchange gives each device what it needs of the others for tick
// number k, and launch makes the tick on device number i.
func (c *crew) each(ctx, wait context.Context, count, most int, exchange func(k int) error,
	launch func(i, k int) error,
) error {
	batch := max(1, most/2) // two batches are in the streams
	for k := range count {
		if err := exchange(k); err != nil {
			return err
		}
		if k%batch == 0 {
			if err := c.pace(ctx, wait, k/batch); err != nil {
				return err
			}
		}
		for i := range c.seats {
			if err := launch(i, k); err != nil {
				return err
			}
		}
		if k%batch == batch-1 {
			if err := c.seats[0].Stream.Record(c.marks[k/batch%len(c.marks)]); err != nil {
				return fault.Mark(err)
			}
		}
	}
	return nil
}

// pace waits before a batch until the first device has made the last but one, so that the streams
// do not run empty, and looks at the end of ctx.
func (c *crew) pace(ctx, wait context.Context, batch int) error {
	if batch >= len(c.marks) {
		if err := c.marks[batch%len(c.marks)].Sync(wait); err != nil {
			return fault.Mark(err)
		}
	}
	return context.Cause(ctx)
}

// tallies returns the sums of the numbers of agents in each state that stand in the memory of the
// further devices at a place. Their streams are done.
func (c *crew) tallies(at func(i int) int64) ([]uint64, error) {
	tally := make([]uint64, c.n.model.states())
	for i, s := range c.seats[1:] {
		own := make([]uint64, len(tally))
		if err := s.Memory.Read(at(i+1), device.Bytes(own)); err != nil {
			return nil, s.Fail(err)
		}
		for state, n := range own {
			tally[state] += n
		}
	}
	return tally, nil
}

// spread copies the bits of the agents of each device to all others, in the buffer that bits
// returns for a device, whose agents have so many bytes from a place on there; at is the place of
// those of agent 0. The bits that a tick writes are not those that another device may still read:
// it has made a tick since.
func (c *crew) spread(bits func(i int) (of device.Buffer, at, own, bytes int64)) error {
	if err := team.Meet(c.seats, c.everyone); err != nil {
		return err
	}
	for i, s := range c.seats {
		to, base, _, _ := bits(i)
		for k := range c.seats {
			if i == k {
				continue
			}
			from, at, own, bytes := bits(k)
			if err := s.Stream.Copy(to, base+own, from, at+own, bytes); err != nil {
				return s.Fail(err)
			}
		}
	}
	return nil
}

// span is consecutive agents.
type span struct{ first, agents int64 }

// partAlign is what the first agent of a device is a multiple of: a warp has so many agents.
const partAlign = 128

// cut returns the agents of each of so many devices, which have about as much work each; nil: there
// are too few agents. work returns the work of the agents before one.
func cut(agents int64, devices int, work func(id int64) int64) (all []span) {
	for i := range int64(devices) {
		s := span{}
		if i > 0 {
			share := work(agents) / int64(devices) * i
			s.first = int64(sort.Search(int(agents), func(id int) bool { return work(int64(id)) >= share }))
			s.first = (s.first + partAlign/2) / partAlign * partAlign
			before := &all[i-1]
			if s.first <= before.first || s.first >= agents {
				return nil
			}
			before.agents = s.first - before.first
		}
		all = append(all, s)
	}
	all[devices-1].agents = agents - all[devices-1].first
	return all
}

// launchTime is the least time of a tick.
const launchTime = 10 * time.Microsecond
