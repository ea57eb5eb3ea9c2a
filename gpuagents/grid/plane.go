// Package grid is the library of swarms whose agents are the cells of a grid on one device: it
// steps, writes and reads them, and needs no queue.
package grid

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the settings of a Plane. Width and Height have no default.
type Options struct {
	Width, Height int64
	// Periodic makes the first and the last row neighbours, and likewise the columns.
	Periodic bool
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Devices is the most devices that make ticks together, up to field.MaxDevices; 0 is 1.
	Devices int
	// Peers are additional devices. A device without enough free memory is skipped. States have the
	// same bits with any number.
	Peers []field.Peer
}

// Plane is the cells of a grid, with ids from 0 on, row by row. All are dead at first. Its pages
// are double-buffered on the device.
//
// One goroutine uses a Plane at a time; its owner closes it before the device. After an error of
// the device, a gpubatch.ErrDevice, and after the end of a context, the state is undefined.
type Plane struct {
	*field.Generations

	o     Options
	life  string
	step  device.Kernel
	alive device.Buffer // the count of a launch

	bands  *bands // nil: one device makes all ticks
	living *living
	always bool // tests share every tick
}

// New makes a grid with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is life, bound to groups that divide the width.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (p *Plane, err error) {
	l, err := layoutOf(cell, &o)
	if err != nil {
		return nil, err
	}
	p = &Plane{o: o, life: gridset.LifeCells}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if gridset.Chunked(int(o.Width), l.Slots*l.Agents) {
		p.life = gridset.LifeRows
	}
	if p.step, err = d.Kernel(p.life); err != nil {
		return p, err
	}
	if p.Generations, err = field.OpenGenerations(d, b, sizes(&o, l)); err != nil {
		return p, err
	}
	if p.alive, err = p.Alloc(8); err != nil {
		return p, err
	}
	return p, p.openBands()
}

func sizes(o *Options, l kernels.Layout) field.Options {
	f := field.Options{
		What: fmt.Sprintf("a grid of %d x %d cells", o.Width, o.Height), Purpose: "grid", Agents: o.Width * o.Height,
		Layout: l, States: 2, Beside: 8 + livingBytes(o), Invalid: ErrInvalid,
	}
	return f.Double(windowBytes(o))
}

// Beside returns what a grid of a cell has on the device beside its pages, in bytes; 0 for options
// that do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	l, err := layoutOf(cell, &o)
	if err != nil {
		return 0
	}
	return sizes(&o, l).Bytes()
}

// layoutOf checks the options, fills in the default, and returns the layout of a page.
func layoutOf(cell *cells.Addressed, o *Options) (l kernels.Layout, err error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	switch {
	case !cell.IsLife():
		return l, fmt.Errorf("%w: cell %s: use life", ErrInvalid, cell.Cell.Name)
	case o.Width < 1 || o.Height < 1 || o.Width > math.MaxUint32/o.Height:
		return l, fmt.Errorf("%w: %d x %d cells: use 1 or more, and fewer than 2^32 in all", ErrInvalid, o.Width,
			o.Height)
	case o.Width%int64(cell.Agents) != 0:
		return l, fmt.Errorf("%w: groups of %d: use a number that divides the width, %d", ErrInvalid, cell.Agents,
			o.Width)
	case o.Devices < 0 || o.Devices > field.MaxDevices:
		return l, fmt.Errorf("%w: %d devices: use 0 to %d", ErrInvalid, o.Devices, field.MaxDevices)
	case o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30:
		return l, fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, o.PageBytes)
	}
	if l, err = cell.Layout(o.PageBytes); err != nil {
		return l, err
	}
	// Pages of whole rows are stepped many cells at a time, so a page has them if it holds one.
	if row := int(o.Width) / cell.Agents; l.Slots > row {
		l.Slots -= l.Slots % row
	}
	return l, nil
}

// Kernel returns the name of the kernel that makes the generations.
func (p *Plane) Kernel() string { return p.life }

// Tick makes n generations, and returns the numbers of dead and of living cells in the last one.
// After each most generations it waits for them with the context wait, and checks ctx.
func (p *Plane) Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if err := p.Begin(wait, n, most, p.Columns.Ready); err != nil {
		return nil, err
	}
	if p.bands != nil && (p.always || p.bands.gains(n)) {
		return p.share(ctx, wait, n, most)
	}
	if err := p.Clear(p.alive); err != nil {
		return nil, err
	}
	err = p.Steps(
		ctx,
		wait,
		n,
		most,
		func(i int, from, to field.Generation) error { return p.launch(from, to, i == n-1) },
	)
	if err != nil {
		return nil, err
	}
	alive, err := p.Tally(wait, p.alive, 1)
	if err != nil {
		return nil, err
	}
	return p.tally(alive[0]), nil
}

func (p *Plane) tally(alive uint64) []uint64 { return []uint64{uint64(p.Len()) - alive, alive} }

func (p *Plane) share(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if err := p.bands.tick(ctx, wait, n, most); err != nil {
		return nil, err
	}
	if err := p.living.start(); err != nil {
		return nil, p.Drain(wait, err)
	}
	if err := p.Sync(wait); err != nil {
		return nil, err
	}
	alive, err := p.living.result()
	return p.tally(alive), gpubatch.Mark(err)
}

// Devices returns the devices that make ticks: the first has the pages.
func (p *Plane) Devices() []device.Device {
	if p.bands == nil {
		return []device.Device{p.Device()}
	}
	return p.bands.List()
}

func (p *Plane) launch(from, to field.Generation, count bool) error {
	l, per := p.Layout(), p.PerPage()
	return p.Stream.Launch(p.step, p.Columns.Shape(gridset.LifeThreads(p.life, int(p.o.Width), int(p.o.Height), per)),
		gridset.LifeArgs{
			From: from.Pages, FromFrames: from.Frames, To: to.Pages, ToFrames: to.Frames,
			PageBytes: uint64(l.PageBytes), Per: uint32(per), Width: uint32(p.o.Width), Height: uint32(p.o.Height),
			Periodic: device.Bit(p.o.Periodic), Count: device.Bit(count), Alive: device.Ptr(p.alive),
		}.Args()...)
}

// Set writes the states of cells, each of them 0 or 1. If a cell occurs several times, its last
// state counts.
func (p *Plane) Set(ctx context.Context, ids []uint32, states []byte) error {
	return p.Columns.Set(ctx, ids, states)
}

// Get returns the states of cells. It makes no page and changes none.
func (p *Plane) Get(ctx context.Context, ids []uint32) ([]byte, error) {
	return p.Columns.Get(ctx, ids)
}

// Close releases everything on the device. A second call does nothing.
func (p *Plane) Close() error {
	if p == nil || p.Generations == nil {
		return nil
	}
	return p.Generations.Close()
}
