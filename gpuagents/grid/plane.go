// Package grid is the library of swarms whose agents are the cells of a grid on one device: it steps,
// writes and reads them, and needs no queue.
package grid

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/team"
	"github.com/exoswarm/exoswarm/gpuagents/turns"
)

// Options are the settings of a Plane. Width and Height have no default.
type Options struct {
	Width, Height int64
	// Periodic makes the first and the last row neighbours, and likewise the columns.
	Periodic bool
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Devices is the most devices that make ticks together, up to team.MaxDevices; 0 is 1.
	Devices int
	// Members are the further ones, of which those without room are not used. States have the same bits
	// with any number.
	Members []team.Member
}

// Plane is the cells of a grid, with ids from 0 on, row by row. All are dead at first. Its pages are
// all on the device, and beside them is a second generation of the same size, in turns with which a
// tick makes its steps. Between two calls the state is in the pages.
//
// One goroutine uses a Plane at a time; its owner closes it before the device. After an error of the
// device, a fault.ErrDevice, and after the end of a context, the state is undefined.
type Plane struct {
	dev    device.Device
	memory *pages.Memory
	layout kernels.Layout
	o      Options
	per    int // cells of a page
	life   string
	stream device.Stream
	step   device.Kernel
	states bytestate.Agents

	// frames is the copy of the table of frames, and places that of the other generation, whose
	// frames are in the order of the pages. alive is the count of a launch.
	frames, places, other, alive device.Buffer

	bands  *bands // nil: the device has the grid alone
	living *living
	always bool // tests share every tick

	turns *turns.Turns
}

// New makes a grid with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is life, bound to groups that divide the width.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, o Options) (p *Plane, err error) {
	l, per, err := place(cell, &o)
	if err != nil {
		return nil, err
	}
	p = &Plane{dev: d, o: o, life: gridset.LifeCells, layout: l, per: per}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if gridset.Chunked(int(o.Width), p.per) {
		p.life = gridset.LifeRows
	}
	return p, p.open(b)
}

// sizes returns what a grid with so many pages has on the device.
func sizes(o *Options, pages, pageBytes int) turns.Options {
	return turns.Options{
		What: fmt.Sprintf("a grid of %d x %d cells", o.Width, o.Height), Pages: pages, PageBytes: pageBytes,
		OtherBytes: firstBytes(o, int64(pages)*int64(pageBytes)), Beside: 8 + livingBytes(o),
	}
}

// Beside returns what a grid of a cell has on the device beside its pages, in bytes; 0 for options that
// do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	l, per, err := place(cell, &o)
	if err != nil {
		return 0
	}
	return sizes(&o, int((o.Width*o.Height+int64(per)-1)/int64(per)), l.PageBytes).Bytes()
}

// place checks the options, fills in the default, and returns the layout of a page and the cells of one.
func place(cell *cells.Addressed, o *Options) (l kernels.Layout, per int, err error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	switch {
	case !cell.IsLife():
		return l, 0, fmt.Errorf("%w: cell %s: use life", ErrInvalid, cell.Cell.Name)
	case o.Width < 1 || o.Height < 1 || o.Width > math.MaxUint32/o.Height:
		return l, 0, fmt.Errorf("%w: %d x %d cells: use 1 or more, and fewer than 2^32 in all", ErrInvalid, o.Width,
			o.Height)
	case o.Width%int64(cell.Agents) != 0:
		return l, 0, fmt.Errorf("%w: groups of %d: use a number that divides the width, %d", ErrInvalid, cell.Agents,
			o.Width)
	case o.Devices < 0 || o.Devices > team.MaxDevices:
		return l, 0, fmt.Errorf("%w: %d devices: use 0 to %d", ErrInvalid, o.Devices, team.MaxDevices)
	case o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30:
		return l, 0, fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, o.PageBytes)
	}
	if l, err = cell.Layout(o.PageBytes); err != nil {
		return l, 0, err
	}
	// Pages of whole rows are stepped many cells at a time, so a page has them if it holds one.
	if row := int(o.Width) / cell.Agents; l.Slots > row {
		l.Slots -= l.Slots % row
	}
	return l, l.Slots * l.Agents, nil
}

// open allocates the memory on the device.
func (p *Plane) open(b *pages.Budget) (err error) {
	if p.step, err = p.dev.Kernel(p.life); err != nil {
		return err
	}
	size := sizes(&p.o, int((p.Len()+int64(p.per)-1)/int64(p.per)), p.layout.PageBytes)
	size.Groups = int(p.Len() / int64(p.layout.Agents))
	if p.turns, err = turns.Open(p.dev, b, size); err != nil {
		return err
	}
	t := p.turns
	p.stream, p.memory, p.frames, p.places, p.other = t.Stream, t.Memory, t.Frames, t.Places, t.Other
	if p.alive, err = t.Alloc(8, "grid"); err != nil {
		return err
	}
	p.states = bytestate.Agents{
		Device: p.dev, Stream: p.stream, Memory: p.memory, Frames: p.frames, Count: p.Len(), Per: p.per,
		PageBytes: p.layout.PageBytes, States: 2, Invalid: ErrInvalid,
	}
	if err := p.states.Open(); err != nil {
		return err
	}
	return p.openBands()
}

// Len returns the number of cells.
func (p *Plane) Len() int64 { return p.o.Width * p.o.Height }

// Layout returns the place of the state in a page.
func (p *Plane) Layout() kernels.Layout { return p.layout }

// Memory returns the pages, which belong to the Plane.
func (p *Plane) Memory() *pages.Memory { return p.memory }

// Device returns the device of the grid.
func (p *Plane) Device() device.Device { return p.dev }

// Kernel returns the name of the kernel that makes the generations.
func (p *Plane) Kernel() string { return p.life }

// Reset makes all cells dead.
func (p *Plane) Reset(ctx context.Context) error { return p.states.Reset(ctx) }

// Tick makes n generations and returns the cells that are dead and those that are alive in the last
// one. It looks at the end of ctx after each most generations, and waits for those with the context
// wait.
func (p *Plane) Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if n < 1 || most < 1 {
		return nil, fmt.Errorf("%w: %d ticks, %d at a time: use 1 or more", ErrInvalid, n, most)
	}
	if err := p.states.Ready(wait); err != nil {
		return nil, err
	}
	p.states.MarkAll()
	if p.bands != nil && (p.always || p.bands.gains(n)) {
		return p.share(ctx, wait, n, most)
	}
	if err := p.alive.Fill(0, 8, 0); err != nil {
		return nil, fault.Mark(err)
	}
	err = p.turns.Steps(ctx, wait, n, most, func(i int, away bool) error { return p.launch(away, i == n-1) })
	if err != nil {
		return nil, err
	}
	var count [1]uint64
	if err := p.alive.Read(0, device.Bytes(count[:])); err != nil {
		return nil, fault.Mark(err)
	}
	return p.tally(count[0]), nil
}

// tally returns the cells that are dead and those that are alive.
func (p *Plane) tally(alive uint64) []uint64 { return []uint64{uint64(p.Len()) - alive, alive} }

// share is Tick on all devices of the team.
func (p *Plane) share(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if err := p.bands.tick(ctx, wait, n, most); err != nil {
		return nil, err
	}
	if err := p.living.start(); err != nil {
		return nil, fault.Mark(errors.Join(err, p.stream.Sync(wait)))
	}
	if err := p.sync(wait); err != nil {
		return nil, err
	}
	alive, err := p.living.result()
	return p.tally(alive), fault.Mark(err)
}

// Devices returns the devices that make ticks: the first has the pages.
func (p *Plane) Devices() []device.Device {
	if p.bands == nil {
		return []device.Device{p.dev}
	}
	return team.Devices(p.bands.seats)
}

// sync waits for all work of the stream.
func (p *Plane) sync(ctx context.Context) error { return p.turns.Sync(ctx) }

// launch puts a generation into the stream: from the pages to the other generation, or back.
func (p *Plane) launch(away, count bool) error {
	from, to := p.turns.Generations(away)
	return p.stream.Launch(p.step, p.states.Shape(gridset.LifeThreads(p.life, int(p.o.Width), int(p.o.Height), p.per)),
		gridset.LifeArgs{
			From: from.Pages, FromFrames: from.Frames, To: to.Pages, ToFrames: to.Frames,
			PageBytes: uint64(p.layout.PageBytes), Per: uint32(p.per), Width: uint32(p.o.Width),
			Height: uint32(p.o.Height), Periodic: device.Bit(p.o.Periodic), Count: device.Bit(count),
			Alive: device.Ptr(p.alive),
		}.Args()...)
}

// Set writes the states of cells, each of them 0 or 1. Of a cell that is there several times, the
// last state counts.
func (p *Plane) Set(ctx context.Context, ids []uint32, states []byte) error {
	return p.states.Set(ctx, ids, states)
}

// Get returns the states of cells. It makes no page and changes none.
func (p *Plane) Get(ctx context.Context, ids []uint32) ([]byte, error) { return p.states.Get(ctx, ids) }

// Close releases everything on the device. A second call does nothing.
func (p *Plane) Close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.turns.Close(), p.states.Close())
}
