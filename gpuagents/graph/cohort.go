package graph

import (
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// cohort has the arguments of launches for consecutive neurons on one device: all neurons on the
// first device, or the neurons of one of several devices.
type cohort struct {
	of            *spiking
	dev           device.Device
	stream        device.Stream
	first, agents int64
	// push, tick and remember are kernels; remember is nil without delays.
	push, tick, remember device.Kernel
	neurons              graphset.AgentsArgs
	active               [2]device.Arg // lists of neurons that spike, used alternately, of the lengths counts
	counts               device.Arg
	types                device.Arg // of neurons of izhikevich
	tally                device.Arg
	links                cohortLinks
	// sums has the input sums of the neurons from the byte sumsAt on. With delays it is a ring of
	// ticks, stride words apart.
	sums   device.Buffer
	sumsAt int64
	stride int64
	// marked reports whether a tick writes a bit for each neuron that spikes, double-buffered,
	// instead of a list.
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
func (c *cohort) lanes() device.Geometry { return field.ShapeOn(c.dev, (c.agents+3)/4) }

// pushShape returns a launch with a warp for each neuron of the network that spikes. Few do, so
// that it needs no more blocks than run at once.
func (c *cohort) pushShape() device.Geometry {
	shape := field.ShapeOn(c.dev, c.of.Len())
	shape.Grid = min(shape.Grid, pushBlocks*c.dev.Properties().Multiprocessors)
	return shape
}

// carry puts into the stream the kernel that adds the links of listed neurons to sums. The neurons
// spiked age ticks before the last tick. Without delays, age is 0.
func (c *cohort) carry(which, age int) error {
	s, l, weight := c.of, &c.links, c.of.cell.Value("weight")
	weighted := device.Bit(s.o.Links.Weighted())
	carried := graphset.CarriedArgs{
		Exciting: s.exciting(), Excitation: fixed(weight), Inhibition: fixed(-weight * s.cell.Value("inhibition")),
		Partial: device.Bit(l.partial), Lengths: l.lengths,
	}
	if s.delayed == nil {
		return c.stream.Launch(c.push, c.pushShape(), graphset.PushArgs{
			ActiveArgs: c.list(which), Sums: c.ring(), Offsets: l.offsets, Columns: l.columns, Weights: l.weights,
			Degree: l.degree, Weighted: weighted, CarriedArgs: carried,
		}.Args()...)
	}
	return c.stream.Launch(c.push, c.pushShape(), graphset.SendArgs{
		ActiveArgs: c.list(which), Sums: c.ring(), Stride: uint64(c.stride), Slots: uint32(s.slots),
		Slot: uint32(s.delayed.slot), Age: uint32(age), Offsets: l.offsets, Columns: l.columns, Weights: l.weights,
		Delays: l.delays, Degree: l.degree, Weighted: weighted, Listed: device.Bit(l.listed),
		DrawnArgs: drawn(s.o.Links), CarriedArgs: carried,
	}.Args()...)
}

func (c *cohort) list(which int) graphset.ActiveArgs {
	return graphset.ActiveArgs{Active: c.active[which], Counts: c.counts, Which: uint32(which)}
}

func (c *cohort) ring() device.Arg {
	if c.of.delayed == nil {
		return device.Range(c.sums, c.sumsAt, 4*c.agents)
	}
	return device.Range(c.sums, c.sumsAt, int64(c.of.slots)*4*c.stride)
}

func (c *cohort) inputs() device.Arg {
	slot := int64(0)
	if c.of.delayed != nil {
		slot = int64(c.of.delayed.slot)
	}
	return device.Range(c.sums, c.sumsAt+slot*4*c.stride, 4*c.agents)
}

// step puts into the stream the kernel that steps the neurons in tick number i of an entry. tick is
// the number of ticks since the reset. If count is set, it adds the neurons in each state to the
// tally.
func (c *cohort) step(i int, tick uint32, count bool) error {
	s, at, next := c.of, c.of.Layout().Offsets, 1-i%2
	ticked := graphset.TickedArgs{
		Tick: tick, Key0: uint32(s.o.Seed), Key1: uint32(s.o.Seed >> 32), Count: device.Bit(count), Tally: c.tally,
		Marked: device.Bit(c.marked), Bits: c.bits[next], FirstID: uint32(c.first),
	}
	value := func(name string) float32 { return float32(s.cell.Value(name)) }
	if s.cell.IsIzhikevich() {
		return c.stream.Launch(c.tick, c.lanes(), graphset.IzhikevichArgs{
			AgentsArgs: c.neurons, Potentials: s.potential, Recoveries: at[cells.IzhikevichRecovery],
			Currents: s.current, Sums: c.inputs(), ActiveArgs: c.list(next), Types: c.types, Exciting: s.exciting(),
			Noisy: device.Bit(value("noise") != 0 || value("inhibitory_noise") != 0), TickedArgs: ticked,
		}.Args()...)
	}
	return c.stream.Launch(c.tick, c.lanes(), graphset.LIFArgs{
		AgentsArgs: c.neurons, Resting: at[cells.LIFRest], Potentials: s.potential, Currents: s.current,
		Sums: c.inputs(), ActiveArgs: c.list(next), Decay: value("decay"), Threshold: value("threshold"),
		Refractory: uint32(value("refractory")), Noise: value("noise"), TickedArgs: ticked,
	}.Args()...)
}

// append puts into the stream the kernel that appends the spikes of a tick to the bits of the last
// ticks.
func (c *cohort) append() error {
	d := c.of.delayed
	keep := uint32(math.MaxUint32) >> (edges.MaxDelay - c.of.slots)
	return c.stream.Launch(c.remember, field.ShapeOn(c.dev, c.agents), graphset.RememberArgs{
		AgentsArgs: c.neurons, History: d.history, Keep: keep, FirstID: uint32(c.first),
	}.Args()...)
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
