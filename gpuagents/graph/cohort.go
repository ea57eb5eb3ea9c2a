package graph

import (
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// cohort is what launches need that are about consecutive neurons on one device: all on the first
// one, or those of a device of a team.
type cohort struct {
	of            *spiking
	dev           device.Device
	stream        device.Stream
	first, agents int64
	// push, tick and remember are kernels; remember is nil without delays.
	push, tick, remember device.Kernel
	// pages are the first arguments of kernels, whose last one is the number of agents.
	pages  []device.Arg
	active [2]device.Arg // lists of neurons that spike, in turns, of the lengths counts
	counts device.Arg
	types  device.Arg // of neurons of izhikevich
	tally  device.Arg
	links  cohortLinks
	// sums are those of the neurons, from a place on. With delays, those of the next tick of the
	// ring are stride words further.
	sums   device.Buffer
	sumsAt int64
	stride int64
	// marked says that a tick writes the bits of those that spike, in turns, instead of a list.
	marked bool
	bits   [2]device.Arg
}

// cohortLinks are the links that a cohort adds to sums: rows of all neurons of the network.
type cohortLinks struct {
	offsets, columns, weights, delays device.Arg
	degree                            uint32 // 0: rows are between offsets
	listed                            bool   // delays has one for each link; else they are drawn
	partial                           bool   // rows have as many first links as lengths says
	lengths                           device.Arg
}

// load loads the kernels that all cohorts need.
func (c *cohort) load() (err error) {
	tick, push := c.of.cell.Kernels()
	all := map[string]*device.Kernel{push: &c.push, tick: &c.tick}
	if c.of.delayed != nil {
		all[graphset.Remember] = &c.remember
	}
	for name, to := range all {
		if *to, err = c.dev.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// lanes returns a launch with a thread for each four neurons.
func (c *cohort) lanes() device.Geometry { return bytestate.ShapeOn(c.dev, (c.agents+3)/4) }

// pushShape returns a launch with a warp for each neuron of the network that spikes. Few do, so
// that it needs no more blocks than run at once.
func (c *cohort) pushShape() device.Geometry {
	shape := bytestate.ShapeOn(c.dev, c.of.Len())
	shape.Grid = min(shape.Grid, pushBlocks*c.dev.Properties().Multiprocessors)
	return shape
}

// carry puts into the stream what adds the links of the neurons of a list, which have spiked age
// ticks before the last one, to sums. Without delays, age is 0.
func (c *cohort) carry(which, age int) error {
	s, l := c.of, &c.links
	list := []device.Arg{c.active[which], c.counts, device.Uint32(uint32(which)), c.ring()}
	weighted := device.Uint32(device.Bit(s.o.Links.weighted()))
	weight := s.cell.Value("weight")
	weights := []device.Arg{
		device.Uint32(s.exciting()), device.Uint32(fixed(weight)),
		device.Uint32(fixed(-weight * s.cell.Value("inhibition"))), device.Uint32(device.Bit(l.partial)), l.lengths,
	}
	if s.delayed == nil {
		args := append(list, l.offsets, l.columns, l.weights, device.Uint32(l.degree), weighted)
		return c.stream.Launch(c.push, c.pushShape(), append(args, weights...)...)
	}
	of := s.o.Links
	least, most := max(1, of.Delays.Least), max(1, of.Delays.Most)
	args := append(list, device.Uint64(uint64(c.stride)), device.Uint32(uint32(s.slots)),
		device.Uint32(uint32(s.delayed.slot)), device.Uint32(uint32(age)), l.offsets, l.columns, l.weights, l.delays,
		device.Uint32(l.degree), weighted, device.Uint32(device.Bit(l.listed)), device.Uint32(uint32(least)),
		device.Uint32(uint32(most-least+1)), device.Uint32(uint32(of.Seed)), device.Uint32(uint32(of.Seed>>32)))
	return c.stream.Launch(c.push, c.pushShape(), append(args, weights...)...)
}

// ring returns the argument for all sums.
func (c *cohort) ring() device.Arg {
	if c.of.delayed == nil {
		return device.Range(c.sums, c.sumsAt, 4*c.agents)
	}
	return device.Range(c.sums, c.sumsAt, int64(c.of.slots)*4*c.stride)
}

// inputs returns the argument for the sums of the next tick.
func (c *cohort) inputs() device.Arg {
	slot := int64(0)
	if c.of.delayed != nil {
		slot = int64(c.of.delayed.slot)
	}
	return device.Range(c.sums, c.sumsAt+slot*4*c.stride, 4*c.agents)
}

// step puts into the stream what steps the neurons in tick number i of an entry, before which there
// were tick ticks. If count is set, it adds the neurons in each state to the tally.
func (c *cohort) step(i int, tick uint32, count bool) error {
	s, at, next := c.of, c.of.layout.Offsets, 1-i%2
	list := []device.Arg{c.inputs(), c.active[next], c.counts, device.Uint32(uint32(next))}
	args := c.pages[:5:5]
	if s.cell.IsIzhikevich() {
		noisy := s.cell.Value("noise") != 0 || s.cell.Value("inhibitory_noise") != 0
		args = append(args, device.Uint32(s.potential), device.Uint32(at[cells.IzhikevichRecovery]),
			device.Uint32(s.current))
		args = append(append(args, list...), c.types, device.Uint32(s.exciting()), device.Uint32(device.Bit(noisy)))
	} else {
		args = append(args, device.Uint32(at[cells.LIFRest]), device.Uint32(s.potential), device.Uint32(s.current))
		args = append(append(args, list...), s.float("decay"), s.float("threshold"),
			device.Uint32(uint32(s.cell.Value("refractory"))), s.float("noise"))
	}
	return c.stream.Launch(c.tick, c.lanes(), append(args, device.Uint32(tick), device.Uint32(uint32(s.o.Seed)),
		device.Uint32(uint32(s.o.Seed>>32)), device.Uint32(device.Bit(count)), c.tally, device.Uint32(device.Bit(c.marked)), c.bits[next],
		device.Uint32(uint32(c.first)))...)
}

// append puts into the stream what appends the states of the neurons to the bits of their last
// ticks.
func (c *cohort) append() error {
	d := c.of.delayed
	keep := uint32(math.MaxUint32) >> (edges.MaxDelay - c.of.slots)
	return c.stream.Launch(c.remember, bytestate.ShapeOn(c.dev, c.agents), append(c.pages[:5:5],
		device.Uint32(d.history), device.Uint32(keep), device.Uint32(uint32(c.first)))...)
}

// launch puts a tick into the stream: spikes of the list number i are carried, and neurons stepped.
func (c *cohort) launch(i int, tick uint32, count bool) error {
	if err := errors.Join(c.carry(i%2, 0), c.step(i, tick, count)); err != nil {
		return err
	}
	if d := c.of.delayed; d != nil && d.remembers(i) {
		return c.append()
	}
	return nil
}
