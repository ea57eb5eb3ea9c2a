// Package graph is the library of swarms whose agents are the nodes of a graph on one device: it
// steps, writes and reads them, and needs no queue.
package graph

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// Options are the settings of a Network. Agents and Links have no default.
type Options struct {
	// Agents is how many there are, a multiple of the groups of the cell, below 2^32.
	Agents int64
	Links  Links
	// Seed chooses the draws of the ticks.
	Seed uint64
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Devices is the most devices that make ticks together, up to team.MaxDevices; 0 is 1.
	Devices int
	// Members are the further ones, of which those without room are not used. States have the same bits
	// with any number.
	Members []team.Member
	atOnce  int64 // rows and links of neurons that are split at a time; 0: splitRows and splitLinks
}

// Network is the agents of the cell sir, lif or izhikevich on a graph, with ids from 0 on. All are susceptible, or
// quiet, at first. Its pages are all on the device, and beside them are the links and what a tick
// derives from the pages. Between two calls the state is in the pages: those of agents, and the number
// of ticks in each group. A tick depends on the states, that number and Options, and on nothing else.
//
// One goroutine uses a Network at a time; its owner closes it before the device. After an error of
// the device, a fault.ErrDevice, and after the end of a context, the state is undefined.
type Network struct {
	dev    device.Device
	memory *pages.Memory
	layout kernels.Layout
	o      Options
	per    int    // agents of a page
	degree uint32 // 0: rows are between offsets
	ticks  uint32 // the place of the number of ticks in a page
	slots  int    // the longest delay of a link
	stream device.Stream
	rounds device.Kernel
	model  model
	states bytestate.Agents

	// frames is the copy of the table of frames, and tally the agents in each state.
	frames, offsets, columns, weights, tally device.Buffer
	close                                    []func() error // in this order
	trace                                    *trace         // nil before the first picture
	always                                   bool           // tests share every tick
}

// model is what a tick of a cell does.
type model interface {
	// states is how many an agent has.
	states() int
	// kernels are those that a tick depends on.
	kernels() []string
	// open allocates what ticks need.
	open() error
	// bytes is how many these are.
	bytes() int64
	// begin puts into the stream what so many ticks need of the pages, and launch tick number i after it,
	// with the number of ticks before it. If count is set, it adds the agents in each state to the tally.
	// end says that all of them are made, and how many agents are in each state then, if that is known.
	begin(ticks int) error
	launch(i int, tick uint32, count bool) error
	end(tally []uint64)
	// memberBytes is what each further device has if so many devices make ticks; 0: so many cannot.
	memberBytes(devices int) int64
	// together makes ticks on several devices; nil: one makes all.
	together() sharer
	// set applies the values of observations, and get returns the votes of agents and a value of each.
	set(ctx context.Context, ids []uint32, values []float32) error
	get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error)
}

// New makes a network with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is sir, lif or izhikevich. A *RoomError says that the device has no room for the links.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (n *Network, err error) {
	n = &Network{dev: d, o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()
	if err = n.place(cell); err != nil {
		return n, err
	}
	n.o.Devices = min(n.o.Devices, len(o.Members)+1)
	return n, n.allocate(b)
}

// place checks the options, fills in the default, and sets what follows from them and the cell.
func (n *Network) place(cell *cells.Addressed) (err error) {
	o := &n.o
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	switch {
	case !cell.IsSIR() && !cell.Spikes():
		return fmt.Errorf("%w: cell %s: use sir, lif or izhikevich", ErrInvalid, cell.Cell.Name)
	case o.Agents < 1 || o.Agents > math.MaxUint32 || o.Agents%int64(cell.Agents) != 0:
		return fmt.Errorf("%w: %d agents in groups of %d: use a multiple of the group, below 2^32", ErrInvalid,
			o.Agents, cell.Agents)
	case o.Devices < 0 || o.Devices > team.MaxDevices:
		return fmt.Errorf("%w: %d devices: use 0 to %d", ErrInvalid, o.Devices, team.MaxDevices)
	case o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30:
		return fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, o.PageBytes)
	}
	if err := o.Links.Check(o.Agents); err != nil {
		return err
	}
	if n.slots = o.Links.longest(); n.slots > 1 {
		if !cell.Spikes() {
			return fmt.Errorf("%w: links of the cell %s with delays: use lif or izhikevich", ErrInvalid, cell.Cell.Name)
		}
		cell = cell.Remembering()
	}
	if n.layout, err = cell.Layout(o.PageBytes); err != nil {
		return err
	}
	n.per = n.layout.Slots * n.layout.Agents
	n.ticks = n.layout.Offsets[len(n.layout.Offsets)-1]
	if n.model = newEpidemic(n, cell); cell.Spikes() {
		n.model = newSpiking(n, cell)
	}
	return nil
}

// allocate takes the memory on the device, and makes the links.
func (n *Network) allocate(b *pages.Budget) (err error) {
	if n.rounds, err = n.dev.Kernel(graphset.Rounds); err != nil {
		return err
	}
	if n.stream, err = n.dev.NewStream(); err != nil {
		return err
	}
	n.close = append(n.close, n.stream.Close)
	count := n.pages()
	whole := b.AllOnDevice().WithBeside(n.besideBytes(count))
	if n.memory, err = pages.NewMemory(n.dev, whole, n.groups(), n.layout.PageBytes, count); err != nil {
		return err
	}
	n.close = append(n.close, n.memory.Close)
	if !n.memory.Resident() { // other processes have taken memory that the budget counts
		return fault.Mark(fmt.Errorf("a graph of %d agents: its pages are not all on the device: %w", n.Len(),
			device.ErrOutOfMemory))
	}
	err = errors.Join(n.alloc(&n.frames, 4*int64(count)), n.alloc(&n.tally, int64(8*n.model.states())))
	if err != nil {
		return err
	}
	n.states = bytestate.Agents{
		Device: n.dev, Stream: n.stream, Memory: n.memory, Frames: n.frames, Count: n.Len(), Per: n.per,
		PageBytes: n.layout.PageBytes, States: n.model.states(), Invalid: ErrInvalid,
	}
	if err := n.states.Open(); err != nil {
		return err
	}
	if err := n.openLinks(); err != nil {
		return err
	}
	return n.model.open()
}

// besideBytes returns what is on the device beside so many pages, in bytes.
func (n *Network) besideBytes(pages int) int64 {
	return 4*int64(pages) + int64(8*n.model.states()) + n.o.Links.Bytes(n.Len()) + n.model.bytes()
}

// Beside returns what a network of a cell has on the device beside its pages, in bytes; 0 for options
// that do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	n := &Network{o: o}
	if n.place(cell) != nil {
		return 0
	}
	return n.besideBytes(n.pages())
}

// pages returns how many pages the agents have.
func (n *Network) pages() int { return int((n.Len() + int64(n.per) - 1) / int64(n.per)) }

// alloc allocates memory that Close releases.
func (n *Network) alloc(to *device.Buffer, bytes int64) (err error) {
	if *to, err = n.dev.Alloc(bytes, "graph"); err != nil {
		return &RoomError{n.Len(), n.o.Links.count(n.Len()), n.besideBytes(n.pages()), err}
	}
	n.close = append(n.close, (*to).Close)
	return nil
}

// groups returns the number of groups.
func (n *Network) groups() int { return int(n.Len() / int64(n.layout.Agents)) }

// Len returns the number of agents.
func (n *Network) Len() int64 { return n.o.Agents }

// Layout returns the place of the state in a page.
func (n *Network) Layout() kernels.Layout { return n.layout }

// Memory returns the pages, which belong to the Network.
func (n *Network) Memory() *pages.Memory { return n.memory }

// Device returns the device of the network.
func (n *Network) Device() device.Device { return n.dev }

// Kernels returns the names of the kernels that decide what a tick makes.
func (n *Network) Kernels() []string { return append([]string{graphset.Links}, n.model.kernels()...) }

// Reset makes all agents as they are at first, and the number of ticks 0.
func (n *Network) Reset(ctx context.Context) error {
	n.trace.forget()
	return n.states.Reset(ctx)
}

// Ticks returns the number of ticks since the last reset.
func (n *Network) Ticks(ctx context.Context) (uint32, error) {
	if !n.memory.Made()[0] {
		return 0, nil
	}
	if err := n.sync(ctx); err != nil {
		return 0, err
	}
	var ticks [1]uint32
	at := int64(n.memory.Frame(0))*int64(n.layout.PageBytes) + int64(n.ticks)
	err := n.memory.Arena().Read(at, device.Bytes(ticks[:]))
	return ticks[0], fault.Mark(err)
}

// Tick makes count ticks and returns the agents in each state after the last one. It looks at the
// end of ctx after each most ticks, and waits for those with the context wait.
func (n *Network) Tick(ctx, wait context.Context, count, most int) (tally []uint64, err error) {
	if count < 1 || most < 1 {
		return nil, fmt.Errorf("%w: %d ticks, %d at a time: use 1 or more", ErrInvalid, count, most)
	}
	if err := n.states.Ready(wait); err != nil {
		return nil, err
	}
	tick, err := n.Ticks(wait)
	if err != nil {
		return nil, err
	}
	n.states.MarkAll()
	if err := n.tally.Fill(0, n.tally.Size(), 0); err != nil {
		return nil, fault.Mark(err)
	}
	failed := func(err error) error { return fault.Mark(errors.Join(err, n.stream.Sync(wait))) }
	alone, shared := n.shared(count)
	if err := n.steps(ctx, wait, tick, alone, most, alone == count); err != nil {
		return nil, err
	}
	others := make([]uint64, n.model.states())
	if alone < count {
		if err := n.sync(wait); err != nil { // the other streams read the pages
			return nil, err
		}
		if alone > 0 {
			n.model.end(nil)
		}
		if others, err = shared.tick(ctx, wait, tick+uint32(alone), count-alone, most); err != nil {
			return nil, err
		}
	}
	if err := n.stream.Launch(n.rounds, n.states.Shape(int64(n.groups())), graphset.RoundsArgs{
		Pages: device.Ptr(n.memory.Arena()), Frames: device.Ptr(n.frames), PageBytes: uint64(n.layout.PageBytes),
		Slots: uint32(n.layout.Slots), Groups: uint32(n.groups()), Offset: n.ticks, Ticks: tick + uint32(count),
	}.Args()...); err != nil {
		return nil, failed(err)
	}
	if err := n.sync(wait); err != nil {
		return nil, err
	}
	tally = make([]uint64, n.model.states())
	if err := n.tally.Read(0, device.Bytes(tally)); err != nil {
		return nil, fault.Mark(err)
	}
	for state, more := range others {
		tally[state] += more
	}
	n.model.end(tally)
	return tally, nil
}

// shared returns how many of some ticks the first device makes alone, and who makes those after them:
// pictures over ticks are drawn from the pages after each tick.
func (n *Network) shared(count int) (alone int, by sharer) {
	if by = n.model.together(); by == nil {
		return count, nil
	}
	if n.trace != nil {
		alone = int(min(int64(count), n.trace.left))
	}
	if alone == count || !n.always && !by.gains(count-alone) {
		return count, nil
	}
	return alone, by
}

// steps makes ticks on the first device. count says that the agents in each state are counted after the last
// one.
func (n *Network) steps(ctx, wait context.Context, tick uint32, ticks, most int, count bool) error {
	if ticks == 0 {
		return nil
	}
	failed := func(err error) error { return fault.Mark(errors.Join(err, n.stream.Sync(wait))) }
	if err := n.model.begin(ticks); err != nil {
		return failed(err)
	}
	for i := range ticks {
		if i%most == 0 {
			if err := n.sync(wait); err != nil {
				return err
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		if err := n.model.launch(i, tick+uint32(i), count && i == ticks-1); err != nil {
			return failed(err)
		}
		if err := n.trace.record(tick + uint32(i)); err != nil {
			return failed(err)
		}
	}
	return nil
}

// Devices returns the devices that make ticks: the first has the pages.
func (n *Network) Devices() []device.Device {
	if by := n.model.together(); by != nil {
		return by.devices()
	}
	return []device.Device{n.dev}
}

// sync waits for all work of the stream.
func (n *Network) sync(ctx context.Context) error { return fault.Mark(n.stream.Sync(ctx)) }

// lanes returns a launch with a thread for each four agents.
func (n *Network) lanes() device.Geometry { return n.states.Shape((n.Len() + 3) / 4) }

// Set applies a value to each of some agents: the state of an agent of sir, 0, 1 or 2, and the current
// of one of lif or izhikevich, which it holds, up to MaxCurrent on both sides of 0. Of an agent that is there several
// times, the last value counts.
func (n *Network) Set(ctx context.Context, ids []uint32, values []float32) error {
	return n.model.set(ctx, ids, values)
}

// Get returns the votes of agents, which are their states, and a value of each: the state of an agent of
// sir, and the potential of a neuron. It makes no page and changes none.
func (n *Network) Get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	return n.model.get(ctx, ids)
}

// Close releases everything on the device. A second call does nothing.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, release := range n.close { // the stream first: it waits for the work that uses the memory
		errs = append(errs, release())
	}
	n.close = nil
	return errors.Join(append(errs, n.states.Close())...)
}

// agentsArgs returns the arguments for the states of all agents.
func (n *Network) agentsArgs() graphset.AgentsArgs {
	return graphset.AgentsArgs{PagesArgs: n.states.Pages(0), Agents: uint32(n.Len())}
}
