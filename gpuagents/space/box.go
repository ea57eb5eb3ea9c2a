// Package space is the library of swarms whose agents are in a box on one device, in two or three
// dimensions: it steps, writes and reads them, and needs no queue.
package space

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the settings of a Box. Agents, Sides and Radius have no default.
type Options struct {
	// Agents is how many there are, a multiple of the groups of the cell, below 2^32.
	Agents int64
	// Sides are the lengths of the box on its axes, as many as the cell has dimensions.
	Sides []float64
	// Radius is the distance within which an agent is near another one, up to a quarter of each side.
	Radius float64
	// Nearest is how many others an agent of boids hears at the most, the nearest of those within the
	// radius, up to spaceset.MostNearest; 0: all of them.
	Nearest int
	// Periodic says that who leaves the box on one side comes back on the other. Else boids bounce off
	// the walls, and circles stop there.
	Periodic bool
	// Seed chooses the first positions and velocities.
	Seed uint64
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
}

// check returns an ErrInvalid for options that do not fit together or the cell.
func (o Options) check(cell *cells.Addressed) error {
	switch {
	case !cell.InBox():
		return fmt.Errorf("%w: cell %s: use boids, circles or colony", ErrInvalid, cell.Cell.Name)
	case o.Agents < 1 || o.Agents > math.MaxUint32 || o.Agents%int64(cell.Agents) != 0:
		return fmt.Errorf("%w: %d agents in groups of %d: use a multiple of the group, below 2^32", ErrInvalid,
			o.Agents, cell.Agents)
	case o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30:
		return fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, o.PageBytes)
	case o.Nearest < 0 || o.Nearest > spaceset.MostNearest || o.Nearest > 0 && !cell.IsBoids():
		return fmt.Errorf("%w: the nearest %d agents, for the cell %s: use up to %d, for boids", ErrInvalid, o.Nearest,
			cell.Cell.Name, spaceset.MostNearest)
	case len(o.Sides) != cell.Dimensions():
		return fmt.Errorf("%w: %d sides for %d dimensions", ErrInvalid, len(o.Sides), cell.Dimensions())
	}
	for _, side := range o.Sides {
		if !(o.Radius > 0 && o.Radius <= side/spaceset.Least && side/o.Radius <= spaceset.MostRadii) { // a NaN is not
			return fmt.Errorf("%w: radius %v in a side of %v: use up to a quarter of it, and at least its %gth part",
				ErrInvalid, o.Radius, side, float64(spaceset.MostRadii))
		}
	}
	return nil
}

// Box is the agents of the cell boids, circles or colony in a box, with ids from 0 on. They are at random places
// at first. Its pages are all on the device, and beside them are two lists of the agents and the bins of
// the box. Between two calls the state is in the pages. A tick depends on it and on Options, and on
// nothing else.
//
// One goroutine uses a Box at a time; its owner closes it before the device. After an error of the
// device, a fault.ErrDevice, and after the end of a context, the state is undefined.
type Box struct {
	dev    device.Device
	memory *pages.Memory
	layout kernels.Layout
	cell   *cells.Addressed
	o      Options
	per    int // agents of a page
	grid   grid
	stream device.Stream
	states bytestate.Agents
	loaded map[string]device.Kernel

	// frames is the copy of the table of frames, and tally the agents in each state.
	frames, tally device.Buffer
	// The lists of the agents before and after the sort, and what each is then.
	positions, velocities, sorted, sortedVelocities, near device.Buffer
	// The agents of each bin, the places of these in the sorted list, the sums of parts of them, and the
	// number of each agent in its bin.
	counts, starts, sums, ranks device.Buffer
	dots                        device.Buffer  // nil before the first picture
	colony                      *colony        // nil: agents do not die
	close                       []func() error // in this order
}

// New makes a box with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is boids, circles or colony. A *RoomError says that the device has no room for the lists.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (x *Box, err error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	if err := o.check(cell); err != nil {
		return nil, err
	}
	x = newBox(cell, o)
	x.dev, x.loaded = d, map[string]device.Kernel{}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
			x = nil
		}
	}()
	if x.layout, err = cell.Layout(o.PageBytes); err != nil {
		return x, err
	}
	x.per = x.layout.Slots * x.layout.Agents
	return x, x.allocate(b)
}

// newBox returns a box without anything on a device.
func newBox(cell *cells.Addressed, o Options) *Box {
	x := &Box{o: o, cell: cell, grid: gridOf(o)}
	if cell.IsColony() {
		x.colony = &colony{}
	}
	return x
}

// allocate takes the memory on the device.
func (x *Box) allocate(b *pages.Budget) (err error) {
	for _, name := range x.Kernels() {
		if x.loaded[name], err = x.dev.Kernel(name); err != nil {
			return err
		}
	}
	if x.stream, err = x.dev.NewStream(); err != nil {
		return err
	}
	x.close = append(x.close, x.stream.Close)
	count := int((x.Len() + int64(x.per) - 1) / int64(x.per))
	groups := int(x.Len() / int64(x.layout.Agents))
	if x.memory, err = pages.NewMemory(x.dev, b.AllOnDevice().WithBeside(x.besideBytes(count)), groups,
		x.layout.PageBytes, count); err != nil {
		return err
	}
	x.close = append(x.close, x.memory.Close)
	if !x.memory.Resident() { // other processes have taken memory that the budget counts
		return fault.Mark(fmt.Errorf("a box of %d agents: its pages are not all on the device: %w", x.Len(),
			device.ErrOutOfMemory))
	}
	for _, m := range x.beside(count) {
		if *m.to, err = x.dev.Alloc(max(least, m.bytes), "space"); err != nil {
			return &RoomError{x.Len(), x.besideBytes(count), err}
		}
		x.close = append(x.close, (*m.to).Close)
	}
	x.states = bytestate.Agents{
		Device: x.dev, Stream: x.stream, Memory: x.memory, Frames: x.frames, Count: x.Len(), Per: x.per,
		PageBytes: x.layout.PageBytes, States: spaceset.States, Invalid: ErrInvalid,
	}
	return x.states.Open()
}

// least is the least bytes of a piece: kernels get memory also where they read nothing.
const least = 8

// piece is memory beside the pages.
type piece struct {
	to    *device.Buffer
	bytes int64
}

// beside returns the memory beside so many pages.
func (x *Box) beside(pages int) []piece {
	n, bins := x.Len(), x.grid.all()
	velocities := int64(0)
	if x.cell.IsBoids() {
		velocities = 16 * n
	}
	own := []piece{
		{&x.frames, 4 * int64(pages)},
		{&x.tally, 8 * spaceset.States},
		{&x.positions, 16 * n},
		{&x.sorted, 16 * (n + 3)}, // steps read behind the last
		{&x.velocities, velocities},
		{&x.sortedVelocities, velocities},
		{&x.near, n},
		{&x.ranks, 4 * n},
		{&x.counts, 4 * bins},
		{&x.starts, 4 * (bins + 1)},
		{&x.sums, 4 * partsOf(x.grid.all())},
	}
	if x.colony != nil {
		own = append(own, x.colony.beside(n)...)
	}
	return own
}

func (x *Box) besideBytes(pages int) (bytes int64) {
	for _, m := range x.beside(pages) {
		bytes += max(least, m.bytes)
	}
	return bytes
}

// Beside returns what a box of a cell has on the device beside its pages, in bytes; 0 for options that
// do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	layout, err := cell.Layout(max(o.PageBytes, 0))
	if o.check(cell) != nil || err != nil {
		return 0
	}
	x, per := newBox(cell, o), int64(layout.Slots*layout.Agents)
	return x.besideBytes(int((o.Agents + per - 1) / per))
}

// Len returns the number of agents.
func (x *Box) Len() int64 { return x.o.Agents }

// Layout returns the place of the state in a page.
func (x *Box) Layout() kernels.Layout { return x.layout }

// Memory returns the pages, which belong to the Box.
func (x *Box) Memory() *pages.Memory { return x.memory }

// Device returns the device of the box.
func (x *Box) Device() device.Device { return x.dev }

// Kernels returns the names of the kernels that decide what a tick makes.
func (x *Box) Kernels() []string {
	step, place := x.cell.Kernels()
	if x.cell.IsBoids() {
		step = spaceset.Nearest(x.o.Nearest)
	}
	if x.colony != nil {
		return append([]string{place, spaceset.Count, spaceset.Sum, spaceset.Start, spaceset.Sort}, colonyKernels...)
	}
	return []string{
		place, spaceset.Load, spaceset.Count, spaceset.Sum, spaceset.Start, spaceset.Sort, step, spaceset.Store,
	}
}

// Reset makes all agents as they are at first. They have no pages then, and are placed by the first
// call that needs these.
func (x *Box) Reset(ctx context.Context) error { return x.states.Reset(ctx) }

// Close releases everything on the device. A second call does nothing.
func (x *Box) Close() error {
	if x == nil {
		return nil
	}
	var errs []error
	for _, release := range x.close { // the stream first: it waits for the work that uses the memory
		errs = append(errs, release())
	}
	x.close = nil
	return errors.Join(append(errs, x.states.Close())...)
}
