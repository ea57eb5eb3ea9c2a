package graph

import (
	"context"
	"sort"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// sharer makes ticks of a network on several devices.
type sharer interface {
	// List returns the devices, the one with the pages first.
	List() []device.Device
	// gains reports whether they make count ticks faster than the first device. It changes no bit.
	gains(count int) bool
	// tick makes ticks from number tick on, and returns the agents of the further devices in each
	// state after the last one. The first device has nothing to do before it. See Network.Tick for
	// the other arguments.
	tick(ctx, wait context.Context, tick uint32, count, most int) (tally []uint64, err error)
}

// devices is the devices that make ticks of a network together. The first has the pages.
type devices struct {
	*field.Devices
	n *Network
}

func (n *Network) openDevices(bytes func(devices int) int64) (*devices, error) {
	d, err := n.OpenDevices(n.o.Peers, n.o.Devices, nil, bytes)
	if err != nil || d == nil {
		return nil, err
	}
	return &devices{d, n}, nil
}

// run runs ticks that put puts into the streams, and returns the sums of the tallies of the further
// devices.
func (c *devices) run(wait context.Context, put func() error, at func(i int) int64) ([]uint64, error) {
	if err := c.Run(wait, put); err != nil {
		return nil, err
	}
	return c.tallies(at)
}

// tallies adds up the tallies of the further devices, which are at offset at(i) of their memory.
// All streams are done.
func (c *devices) tallies(at func(i int) int64) ([]uint64, error) {
	tally := make([]uint64, c.n.model.states())
	for i, s := range c.All[1:] {
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

// spread copies the bits of each device's agents to all other devices. bits returns the buffer of
// device i, the offset of the bits of agent 0, and the offset from there and the length of the bits
// of its own agents. No device overwrites bits that another device still reads, because bits are
// double-buffered and each exchange starts with a barrier.
func (c *devices) spread(bits func(i int) (of device.Buffer, at, own, bytes int64)) error {
	if err := c.Barrier(c.Everyone); err != nil {
		return err
	}
	for i, s := range c.All {
		to, base, _, _ := bits(i)
		for k := range c.All {
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

type span struct{ first, agents int64 }

// partAlign divides the number of the first agent of each device: the agents of a warp.
const partAlign = 128

// cut splits the agents over devices with about equal work; nil: there are too few agents. work(id)
// is the work of all agents before id.
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
