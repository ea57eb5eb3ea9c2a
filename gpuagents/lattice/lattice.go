// Package lattice steps agents with a custom cell on a grid of two or three dimensions or on a
// graph, on one device. It writes and reads them, and needs no queue.
package lattice

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	text "github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the settings of a Lattice: Width and Height of a grid, or Agents and Links of a
// graph, which have no default.
type Options struct {
	// Width, Height and Depth are the sides of the grid. The default of Depth is 1: a grid of two
	// dimensions. Agent z*Width*Height + y*Width + x is at x, y, z.
	Width, Height, Depth int64
	// Agents is the number of agents of a graph. Links says whom each agent hears.
	Agents int64
	Links  *edges.Links
	// Seed is the key of the random numbers of steps.
	Seed uint64
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
}

func (o *Options) rows() int64 { return o.Height * o.Depth }

func (o *Options) agents() int64 {
	if o.Links != nil {
		return o.Agents
	}
	return o.Width * o.rows()
}

// String implements fmt.Stringer.
func (o *Options) String() string {
	if o.Links != nil {
		return fmt.Sprintf("a graph of %d agents", o.Agents)
	}
	if o.Depth == 1 {
		return fmt.Sprintf("a grid of %d x %d agents", o.Width, o.Height)
	}
	return fmt.Sprintf("a grid of %d x %d x %d agents", o.Width, o.Height, o.Depth)
}

// Lattice is agents on a grid or a graph. All variables are 0 at first. Its pages are
// double-buffered on the device.
//
// One goroutine uses a Lattice at a time; its owner closes it before the device. After an error of
// the device, a gpubatch.ErrDevice, and after the end of a context, the state is undefined.
type Lattice struct {
	*field.Generations

	cell *cells.Addressed
	o    Options
	step device.Kernel

	places, params, tally device.Buffer // the layout, the parameters, and counts of candidates
	wires                 field.Wires   // of a graph

	each   uint32 // rows of a page
	magic  uint32 // of a division by it
	shift  uint32
	band   int64         // layers that a thread makes
	double field.Columns // of variables with two elements for each agent
}

// New makes a grid with pages that take the budget b, which must have room for all of them on the
// device. The pages are not open: the caller opens Memory, empty or with a checkpoint, before the
// first call. cell is a custom one of cells.AddressLattice, bound to groups that divide the width,
// and step is the kernel that Compile has made of it.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, step device.Kernel, o Options) (l *Lattice,
	err error,
) {
	layout, err := layoutOf(cell, &o)
	if err != nil {
		return nil, err
	}
	l = &Lattice{cell: cell, o: o, step: step}
	if l.each = uint32(layout.Slots * layout.Agents); o.Links == nil {
		l.each /= uint32(o.Width)
	}
	l.magic, l.shift = text.Divide(l.each)
	l.band = bandFor(d, &o)
	if err := l.open(d, b, layout); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Compile compiles the step of a custom cell of cells.AddressLattice. A *device.SourceError has the
// words of the compiler, and a device without one is device.ErrNotSupported.
func Compile(d device.Device, cell *cells.Addressed) (device.Kernel, error) {
	params := text.Params
	if cell.Cell.Kernel == text.LinksKernel {
		params = text.LinksParams
	}
	return d.CompileExact(cell.Cell.Kernel, cell.Cell.Source, params...)
}

// bandFor returns how many layers a thread makes: fewer on small grids, so that all processors have
// threads. It changes no bit.
func bandFor(d device.Device, o *Options) int64 {
	const least, most = 2, 32
	threads := int64(d.Properties().Multiprocessors) * 8192
	return max(least, min(most, o.agents()/max(1, threads)))
}

// Beside returns what a grid of a cell has on the device beside its pages, in bytes; 0 for options
// that do not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	layout, err := layoutOf(cell, &o)
	if err != nil {
		return 0
	}
	return sizes(cell, &o, layout).Bytes()
}

const tallyBytes = 8 * text.MaxCandidates

func sizes(cell *cells.Addressed, o *Options, l kernels.Layout) field.Options {
	f := field.Options{
		What: o.String(), Purpose: "grid", Agents: o.agents(), Layout: l, States: 256, Invalid: ErrInvalid,
		Beside: int64(4*len(l.Table())+4*len(cell.LatticeBlock(0))+tallyBytes) + o.linkBytes(),
	}
	return f.Double(0)
}

func (o *Options) linkBytes() int64 {
	if o.Links == nil {
		return 0
	}
	return o.Links.Bytes(o.Agents)
}

// checkSize returns an ErrInvalid for sizes of a grid or a graph that do not fit the cell.
func (o *Options) checkSize(cell *cells.Addressed) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case !cell.OnLattice():
		return bad("cell %s: use a custom one", cell.Cell.Name)
	case (o.Links == nil) != (cell.Cell.Kernel == text.Kernel):
		return bad("the cell is for a grid or a graph, and the options are for the other one")
	case o.Links != nil && (o.Agents < 1 || o.Agents > text.MostAgents || o.Agents%int64(cell.Agents) != 0):
		return bad("%d agents in groups of %d: use a multiple of the group, below 2^31", o.Agents, cell.Agents)
	case o.Links != nil:
		if err := o.Links.Check(o.Agents); err != nil {
			return bad("%v", err)
		}
	case o.Width < 1 || o.Height < 1 || o.Depth < 1 || o.Width > text.MostAgents/o.Height ||
		o.Width*o.Height > text.MostAgents/o.Depth:
		return bad("%d x %d x %d agents: use 1 or more, and fewer than 2^31 in all", o.Width, o.Height, o.Depth)
	case o.Width%int64(cell.Agents) != 0:
		return bad("groups of %d: use a number that divides the width, %d", cell.Agents, o.Width)
	}
	return nil
}

// layoutOf checks the options, fills in the defaults, and returns the layout of a page, which has
// whole rows.
func layoutOf(cell *cells.Addressed, o *Options) (l kernels.Layout, err error) {
	if o.PageBytes == 0 {
		o.PageBytes = 2 << 20
	}
	if o.Depth == 0 {
		o.Depth = 1
	}
	bad := func(format string, args ...any) (kernels.Layout, error) {
		return l, fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := o.checkSize(cell); err != nil {
		return l, err
	}
	if o.PageBytes%4096 != 0 || o.PageBytes < 0 || o.PageBytes > 1<<30 {
		return bad("pages of %d bytes: use a multiple of 4096 up to 2^30", o.PageBytes)
	}
	if o.Links != nil {
		return cell.Layout(o.PageBytes)
	}
	if l, err = cell.RowLayout(o.PageBytes, o.Width); err != nil {
		return bad("%v", err)
	}
	return l, nil
}

func (l *Lattice) open(d device.Device, b *pages.Budget, layout kernels.Layout) (err error) {
	if l.Generations, err = field.OpenGenerations(d, b, sizes(l.cell, &l.o, layout)); err != nil {
		return err
	}
	for _, m := range []struct {
		to    *device.Buffer
		words []uint32
	}{
		{&l.places, layout.Table()},
		{&l.params, l.cell.LatticeBlock(l.o.Seed)},
		{&l.tally, make([]uint32, tallyBytes/4)},
	} {
		if *m.to, err = l.Alloc(int64(4 * len(m.words))); err != nil {
			return err
		}
		if err := (*m.to).Write(0, device.Bytes(m.words)); err != nil {
			return err
		}
	}
	if l.o.Links != nil {
		if l.wires, err = l.OpenWires(*l.o.Links); err != nil {
			return err
		}
	}
	// Bytes of a page that no agent has are copied with it: they are 0 in both generations.
	if err := l.Second.Fill(0, l.Second.Size(), 0); err != nil {
		return err
	}
	l.double = l.Columns.Elements(2)
	l.AddClose(func() error { return l.double.Close() })
	return l.double.Open()
}

// Tick makes n steps and returns how many agents vote for each candidate after the last one. After
// each most steps it waits for them with the context wait, and checks ctx.
func (l *Lattice) Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if err := l.Begin(wait, n, most, l.Columns.Ready); err != nil {
		return nil, err
	}
	if err := l.Clear(l.tally); err != nil {
		return nil, err
	}
	first, err := l.Ticks()
	if err != nil {
		return nil, err
	}
	err = l.Steps(ctx, wait, n, most, func(i int, from, to field.Generation) error {
		return l.launch(from, to, first+uint64(i), i == n-1)
	})
	if err != nil {
		return nil, err
	}
	return l.Tally(wait, l.tally, l.cell.Candidates)
}

// Ticks returns how many ticks the agents have made.
func (l *Lattice) Ticks() (uint64, error) {
	at := l.Layout().Offsets
	return field.ReadFirst[uint64](l.Field, at[len(l.Layout().Vars)-1])
}

func (l *Lattice) launch(from, to field.Generation, tick uint64, count bool) error {
	args := []device.Arg{
		from.Pages, from.Frames, to.Pages, to.Frames, device.Uint32(uint32(l.Layout().PageBytes)), device.Ptr(l.places),
		device.Ptr(l.params),
	}
	if l.o.Links != nil {
		w := l.wires
		args = append(args, device.Uint32(uint32(l.Len())), device.Uint32(l.each), device.Uint32(l.magic),
			device.Uint32(l.shift), device.Ptr(w.Offsets), device.Ptr(w.Columns), device.Ptr(w.Weights),
			device.Uint32(w.Degree), device.Uint32(device.Bit(w.Weighted)))
	} else {
		args = append(args, device.Uint32(uint32(l.o.Width)), device.Uint32(uint32(l.o.Height)),
			device.Uint32(uint32(l.o.Depth)), device.Uint32(l.each), device.Uint32(l.magic), device.Uint32(l.shift),
			device.Uint32(uint32(l.band)))
	}
	args = append(args, device.Uint64(tick), device.Uint32(device.Bit(count)), device.Ptr(l.tally))
	return l.Stream.Launch(l.step, l.Columns.Shape(l.threads()), args...)
}

// threads returns the threads with work in a launch.
func (l *Lattice) threads() int64 {
	switch {
	case l.o.Links != nil:
		return l.Len()
	case l.o.Depth == 1:
		return l.o.Width * ((l.o.Height + l.band - 1) / l.band)
	}
	const tall = text.Block / 32 // rows of a block, of 32 columns
	return text.Block * ((l.o.Width + 31) / 32) * ((l.o.Height + tall - 1) / tall) * ((l.o.Depth + l.band - 1) / l.band)
}

// Close releases everything on the device. A second call does nothing.
func (l *Lattice) Close() error {
	if l == nil || l.Generations == nil {
		return nil
	}
	return l.Generations.Close()
}
