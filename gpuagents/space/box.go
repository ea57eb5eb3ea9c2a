// Package space is the library of swarms whose agents are in a box on one device, in two or three
// dimensions: it steps, writes and reads them, and needs no queue.
package space

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/field"
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

// Box is the agents of the cell boids, circles or colony in a box, with ids from 0 on. Their
// initial positions are random. Its pages are all on the device. The device also has two lists of
// the agents and the bins of the box. Between two calls the state is in the pages. A tick depends
// on the state and on Options alone.
//
// One goroutine uses a Box at a time; its owner closes it before the device. After an error of the
// device, a gpubatch.ErrDevice, and after the end of a context, the state is undefined.
type Box struct {
	*field.Field

	cell   *cells.Addressed
	o      Options
	grid   grid
	loaded map[string]device.Kernel

	tally device.Buffer // the agents in each state
	// The lists of the agents before and after the sort, and what each is then.
	positions, velocities, sorted, sortedVelocities, near device.Buffer
	// The number of agents of each bin, the index of its first agent in the sorted list, the sums of
	// parts, and the number of each agent in its bin.
	counts, starts, sums, ranks device.Buffer
	dots                        device.Buffer // nil before the first picture
	colony                      *colony       // nil: agents do not die
}

// New makes a box with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is boids, circles or colony. A *field.RoomError says that the device has no room
// for the lists.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (x *Box, err error) {
	if x, err = plan(cell, o); err != nil {
		return nil, err
	}
	if err := x.open(d, b); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// plan checks the options, fills in the default, and returns a box with nothing on a device.
func plan(cell *cells.Addressed, o Options) (*Box, error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	if err := o.check(cell); err != nil {
		return nil, err
	}
	layout, err := cell.Layout(o.PageBytes)
	if err != nil {
		return nil, err
	}
	x := &Box{o: o, cell: cell, grid: gridOf(o), loaded: map[string]device.Kernel{}}
	if cell.IsColony() {
		x.colony = &colony{}
	}
	x.Field = field.New(field.Options{
		What: fmt.Sprintf("a box of %d agents", o.Agents), Purpose: "space", Fewer: "agents", Agents: o.Agents,
		Layout: layout, States: spaceset.States, Invalid: ErrInvalid,
	})
	for _, m := range x.beside() {
		x.Reserve(max(least, m.bytes))
	}
	return x, nil
}

func (x *Box) open(d device.Device, b *pages.Budget) (err error) {
	for _, name := range x.Kernels() {
		if x.loaded[name], err = d.Kernel(name); err != nil {
			return err
		}
	}
	if err := x.Open(d, b); err != nil {
		return err
	}
	for _, m := range x.beside() {
		if *m.to, err = x.Alloc(max(least, m.bytes)); err != nil {
			return err
		}
	}
	return nil
}

// least is the least bytes of a buffer: kernels get memory also where they read nothing.
const least = 8

type sized struct {
	to    *device.Buffer
	bytes int64
}

func (x *Box) beside() []sized {
	n, bins := x.Len(), x.grid.all()
	velocities := int64(0)
	if x.cell.IsBoids() {
		velocities = 16 * n
	}
	all := []sized{
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
		all = append(all, x.colony.beside(n)...)
	}
	return all
}

// Beside returns what a box of a cell has on the device beside its pages, in bytes; 0 for options
// that do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	x, err := plan(cell, o)
	if err != nil {
		return 0
	}
	return x.Bytes()
}

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

// Close releases everything on the device. A second call does nothing.
func (x *Box) Close() error {
	if x == nil {
		return nil
	}
	return x.Field.Close()
}
