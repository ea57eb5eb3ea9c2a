// Package graph is the library of swarms whose agents are the nodes of a graph on one device: it
// steps, writes and reads them, and needs no queue.
package graph

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the settings of a Network. Agents and Links have no default.
type Options struct {
	// Agents is how many there are, a multiple of the groups of the cell, below 2^32.
	Agents int64
	Links  edges.Links
	// Seed chooses the draws of the ticks.
	Seed uint64
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Devices is the most devices that make ticks together, up to field.MaxDevices; 0 is 1.
	Devices int
	// Peers are additional devices. A device without enough free memory is skipped. States have the
	// same bits with any number.
	Peers  []field.Peer
	atOnce int64 // rows and links of neurons that are split at a time; 0: splitRows and splitLinks
}

// Network is the agents of the cell sir, lif or izhikevich on a graph, with ids from 0 on. All are
// susceptible, or quiet, at first. Its pages are all on the device. The device also has the links
// and what a tick derives from the pages. Between two calls the state is in the pages: the
// variables of agents, and the number of ticks in each group. A tick depends on the states, that
// number and Options, and on nothing else.
//
// One goroutine uses a Network at a time; its owner closes it before the device. After an error of
// the device, a gpubatch.ErrDevice, and after the end of a context, the state is undefined.
type Network struct {
	*field.Field

	o      Options
	degree uint32 // 0: rows are between offsets
	ticks  uint32 // the offset of the number of ticks in a page
	slots  int    // the longest delay of a link
	rounds device.Kernel
	model  model

	offsets, columns, weights, tally device.Buffer // tally has the agents in each state
	trace                            *trace        // nil before the first picture
	always                           bool          // tests share every tick
}

// model is what a tick of a cell does.
type model interface {
	// states is how many an agent has.
	states() int
	// kernels returns the names of the kernels that decide the result of a tick.
	kernels() []string
	// open allocates what ticks need.
	open() error
	// bytes is how many these are.
	bytes() int64
	// begin puts into the stream what the next ticks derive from the pages. launch puts tick number
	// i into the stream; tick is the number of ticks since the reset. If count is set, it adds the
	// agents in each state to the tally. end is called after all ticks, with the tally if it is
	// known.
	begin(ticks int) error
	launch(i int, tick uint32, count bool) error
	end(tally []uint64)
	// peerBytes returns the memory of each further device for a number of devices; 0: they are too
	// many.
	peerBytes(devices int) int64
	// together makes ticks on several devices; nil: one makes all.
	together() sharer
	// set applies the values of observations, and get returns the votes of agents and a value of each.
	set(ctx context.Context, ids []uint32, values []float32) error
	get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error)
}

// New makes a network with pages that take the budget b, which must have room for all of them on
// the device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before
// the first call. cell is sir, lif or izhikevich. A *field.RoomError says that the device has no
// room for the links.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (n *Network, err error) {
	o.Devices = min(o.Devices, len(o.Peers)+1)
	if n, err = plan(cell, o); err != nil {
		return nil, err
	}
	if err := n.open(d, b); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// plan checks the options, fills in the default, and returns a network with nothing on a device.
func plan(cell *cells.Addressed, o Options) (n *Network, err error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	switch {
	case !cell.IsSIR() && !cell.Spikes():
		return nil, fmt.Errorf("%w: cell %s: use sir, lif or izhikevich", ErrInvalid, cell.Cell.Name)
	case o.Agents < 1 || o.Agents > math.MaxUint32 || o.Agents%int64(cell.Agents) != 0:
		return nil, fmt.Errorf("%w: %d agents in groups of %d: use a multiple of the group, below 2^32", ErrInvalid,
			o.Agents, cell.Agents)
	case o.Devices < 0 || o.Devices > field.MaxDevices:
		return nil, fmt.Errorf("%w: %d devices: use 0 to %d", ErrInvalid, o.Devices, field.MaxDevices)
	case o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30:
		return nil, fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, o.PageBytes)
	}
	if err := o.Links.Check(o.Agents); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	n = &Network{o: o}
	if n.slots = o.Links.Longest(); n.slots > 1 {
		if !cell.Spikes() {
			return nil, fmt.Errorf("%w: links of the cell %s with delays: use lif or izhikevich", ErrInvalid,
				cell.Cell.Name)
		}
		cell = cell.Remembering()
	}
	layout, err := cell.Layout(o.PageBytes)
	if err != nil {
		return nil, err
	}
	states := graphset.States
	if cell.Spikes() {
		states = len(cells.LIFCandidates)
	}
	n.Field = field.New(field.Options{
		What:  fmt.Sprintf("a graph of %d agents", o.Agents),
		Links: fmt.Sprintf(" and %d links", o.Links.Count(o.Agents)), Purpose: "graph", Fewer: "links",
		Agents: o.Agents, Layout: layout, States: states, Invalid: ErrInvalid,
	})
	n.ticks = layout.Offsets[len(layout.Offsets)-1]
	if n.model = newEpidemic(n, cell); cell.Spikes() {
		n.model = newSpiking(n, cell)
	}
	n.Reserve(int64(8*states) + o.Links.Bytes(o.Agents) + n.model.bytes())
	return n, nil
}

// open takes the memory on the device, and makes the links.
func (n *Network) open(d device.Device, b *pages.Budget) (err error) {
	if n.rounds, err = d.Kernel(graphset.Rounds); err != nil {
		return err
	}
	if err := n.Open(d, b); err != nil {
		return err
	}
	if n.tally, err = n.Alloc(int64(8 * n.model.states())); err != nil {
		return err
	}
	w, err := n.OpenWires(n.o.Links)
	if err != nil {
		return err
	}
	n.offsets, n.columns, n.weights, n.degree = w.Offsets, w.Columns, w.Weights, w.Degree
	return n.model.open()
}

// Beside returns what a network of a cell has on the device beside its pages, in bytes; 0 for
// options that do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	n, err := plan(cell, o)
	if err != nil {
		return 0
	}
	return n.Bytes()
}

func (n *Network) alloc(to *device.Buffer, bytes int64) (err error) {
	*to, err = n.Alloc(bytes)
	return err
}

// Kernels returns the names of the kernels that decide what a tick makes.
func (n *Network) Kernels() []string { return append([]string{graphset.Links}, n.model.kernels()...) }

// Reset makes all agents as they are at first, and the number of ticks 0.
func (n *Network) Reset(ctx context.Context) error {
	n.trace.forget()
	return n.Field.Reset(ctx)
}

// Ticks returns the number of ticks since the last reset.
func (n *Network) Ticks(ctx context.Context) (uint32, error) {
	if err := n.Sync(ctx); err != nil {
		return 0, err
	}
	return field.ReadFirst[uint32](n.Field, n.ticks)
}

// Tick makes count ticks and returns the agents in each state after the last one. After each most
// ticks it waits for them with the context wait, and checks ctx.
func (n *Network) Tick(ctx, wait context.Context, count, most int) (tally []uint64, err error) {
	if err := n.Begin(wait, count, most, n.Columns.Ready); err != nil {
		return nil, err
	}
	tick, err := n.Ticks(wait)
	if err != nil {
		return nil, err
	}
	if err := n.Clear(n.tally); err != nil {
		return nil, err
	}
	alone, shared := n.shared(count)
	if err := n.steps(ctx, wait, tick, alone, most, alone == count); err != nil {
		return nil, err
	}
	others := make([]uint64, n.model.states())
	if alone < count {
		if err := n.Sync(wait); err != nil { // the other streams read the pages
			return nil, err
		}
		if alone > 0 {
			n.model.end(nil)
		}
		if others, err = shared.tick(ctx, wait, tick+uint32(alone), count-alone, most); err != nil {
			return nil, err
		}
	}
	if err := n.SetTicks(n.rounds, n.ticks, tick+uint32(count)); err != nil {
		return nil, n.Drain(wait, err)
	}
	if tally, err = n.Tally(wait, n.tally, n.model.states()); err != nil {
		return nil, err
	}
	for state, more := range others {
		tally[state] += more
	}
	n.model.end(tally)
	return tally, nil
}

// shared returns how many of some ticks the first device makes alone, and who makes those after
// them: pictures over ticks are drawn from the pages after each tick.
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

// steps makes ticks on the first device. If count is set, the agents in each state are counted
// after the last one.
func (n *Network) steps(ctx, wait context.Context, tick uint32, ticks, most int, count bool) error {
	if ticks == 0 {
		return nil
	}
	if err := n.model.begin(ticks); err != nil {
		return n.Drain(wait, err)
	}
	return n.Steps(ctx, wait, ticks, most, func(i int) error {
		if err := n.model.launch(i, tick+uint32(i), count && i == ticks-1); err != nil {
			return err
		}
		return n.trace.record(tick + uint32(i))
	})
}

// Devices returns the devices that make ticks: the first has the pages.
func (n *Network) Devices() []device.Device {
	if by := n.model.together(); by != nil {
		return by.List()
	}
	return []device.Device{n.Device()}
}

// lanes returns a launch with a thread for each four agents.
func (n *Network) lanes() device.Geometry { return n.Columns.Shape((n.Len() + 3) / 4) }

// Set applies a value to each of some agents: the state of an agent of sir, 0, 1 or 2, and the
// current of one of lif or izhikevich, which it holds, up to MaxCurrent on both sides of 0. Of an
// agent that is there several times, the last value counts.
func (n *Network) Set(ctx context.Context, ids []uint32, values []float32) error {
	return n.model.set(ctx, ids, values)
}

// Get returns the votes of agents, which are their states, and a value of each: the state of an
// agent of sir, and the potential of a neuron. It makes no page and changes none.
func (n *Network) Get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	return n.model.get(ctx, ids)
}

// Close releases everything on the device. A second call does nothing.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	return n.Field.Close()
}

func (n *Network) agentsArgs() graphset.AgentsArgs {
	return graphset.AgentsArgs{PagesArgs: n.Columns.Pages(0), Agents: uint32(n.Len())}
}
