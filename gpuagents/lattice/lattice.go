// Package lattice steps agents with a custom cell on a grid of two or three dimensions or on a graph, on
// one device. It writes and reads them, and needs no queue.
package lattice

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	text "github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/turns"
)

// MostAgents is the most agents of a Lattice.
const MostAgents = math.MaxInt32

// Options are the settings of a Lattice: Width and Height of a grid, or Agents and Links of a graph, which have
// no default.
type Options struct {
	// Width, Height and Depth are the sides of the grid. The default of Depth is 1: a grid of two
	// dimensions. Agent z*Width*Height + y*Width + x is at x, y, z.
	Width, Height, Depth int64
	// Agents is how many there are on a graph, and Links those of the agents whom each of them hears.
	Agents int64
	Links  *graph.Links
	// Seed is the key of the random numbers of steps.
	Seed uint64
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
}

// rows returns the number of rows of all layers.
func (o *Options) rows() int64 { return o.Height * o.Depth }

// agents returns the number of all agents.
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

// Lattice is agents on a grid or a graph. All variables are 0 at first. Its pages are all on the device, and
// beside them is a second generation of the same size. Between two calls the state is in the pages.
//
// One goroutine uses a Lattice at a time; its owner closes it before the device. After an error of the
// device, a fault.ErrDevice, and after the end of a context, the state is undefined.
type Lattice struct {
	dev    device.Device
	cell   *cells.Addressed
	layout kernels.Layout
	o      Options
	turns  *turns.Turns
	memory *pages.Memory
	step   device.Kernel

	places, params, tally device.Buffer // the layout, the parameters, and counts of candidates
	wires                 graph.Wires   // of a graph

	each   uint32 // rows of a page
	magic  uint32 // of a division by it
	shift  uint32
	band   int64            // layers that a thread makes
	single bytestate.Agents // an agent has an element of a variable: a byte or a word
	double bytestate.Agents // it has two
}

// New makes a grid with pages that take the budget b, which must have room for all of them on the device.
// The pages are not open: the caller opens Memory, empty or with a checkpoint, before the first call. cell is
// a custom one of cells.AddressLattice, bound to groups that divide the width, and step is the kernel that
// Compile has made of it.
func New(d device.Device, b *pages.Budget, cell *cells.Addressed, step device.Kernel, o Options) (l *Lattice,
	err error,
) {
	layout, err := place(cell, &o)
	if err != nil {
		return nil, err
	}
	l = &Lattice{dev: d, cell: cell, layout: layout, o: o, step: step}
	if l.each = uint32(layout.Slots * layout.Agents); o.Links == nil {
		l.each /= uint32(o.Width)
	}
	l.magic, l.shift = text.Divide(l.each)
	l.band = bandFor(d, &o)
	if err := l.open(b); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Compile compiles the step of a custom cell of cells.AddressLattice. A *device.SourceError has the words of the
// compiler, and a device without one is device.ErrNotSupported.
func Compile(d device.Device, cell *cells.Addressed) (device.Kernel, error) {
	params := text.Params
	if cell.Cell.Kernel == text.LinksKernel {
		params = text.LinksParams
	}
	return d.CompileExact(cell.Cell.Kernel, cell.Cell.Source, params...)
}

// bandFor returns how many layers a thread makes: fewer on small grids, so that all processors have threads.
// It changes no bit.
func bandFor(d device.Device, o *Options) int64 {
	const least, most = 2, 32
	threads := int64(d.Properties().Multiprocessors) * 8192
	return max(least, min(most, o.agents()/max(1, threads)))
}

// Layout returns the place of the state in a page; an ErrInvalid for options that do not fit together.
func Layout(cell *cells.Addressed, o Options) (kernels.Layout, error) { return place(cell, &o) }

// Beside returns what a grid of a cell has on the device beside its pages, in bytes; 0 for options that do
// not fit together.
func Beside(cell *cells.Addressed, o Options) int64 {
	layout, err := place(cell, &o)
	if err != nil {
		return 0
	}
	return sizes(cell, &o, layout).Bytes()
}

// tallyBytes is the size of the counts of candidates.
const tallyBytes = 8 * text.MaxCandidates

// sizes returns what a grid has on the device.
func sizes(cell *cells.Addressed, o *Options, l kernels.Layout) turns.Options {
	per := int64(l.Slots * l.Agents)
	return turns.Options{
		What: o.String(), Groups: int(o.agents() / int64(l.Agents)), Pages: int((o.agents() + per - 1) / per),
		PageBytes: l.PageBytes,
		Beside:    int64(4*len(l.Table())+4*len(cell.LatticeBlock(0))+tallyBytes) + o.linkBytes(),
	}
}

// linkBytes returns what the links of a graph take.
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
	case o.Links != nil && (o.Agents < 1 || o.Agents > MostAgents || o.Agents%int64(cell.Agents) != 0):
		return bad("%d agents in groups of %d: use a multiple of the group, below 2^31", o.Agents, cell.Agents)
	case o.Links != nil:
		if err := o.Links.Check(o.Agents); err != nil {
			return bad("%v", err)
		}
	case o.Width < 1 || o.Height < 1 || o.Depth < 1 || o.Width > MostAgents/o.Height ||
		o.Width*o.Height > MostAgents/o.Depth:
		return bad("%d x %d x %d agents: use 1 or more, and fewer than 2^31 in all", o.Width, o.Height, o.Depth)
	case o.Width%int64(cell.Agents) != 0:
		return bad("groups of %d: use a number that divides the width, %d", cell.Agents, o.Width)
	}
	return nil
}

// place checks the options, fills in the defaults, and returns the layout of a page, which has whole rows.
func place(cell *cells.Addressed, o *Options) (l kernels.Layout, err error) {
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
	if l, err = cell.Layout(o.PageBytes); err != nil || o.Links != nil {
		return l, err
	}
	row := int(o.Width) / cell.Agents
	if l.Slots < row {
		return bad("a page of %d bytes has %d agents, and a row of the grid %d: use larger pages, or a smaller width",
			o.PageBytes, l.Slots*l.Agents, o.Width)
	}
	l.Slots -= l.Slots % row
	return l, nil
}

// open allocates the memory on the device.
func (l *Lattice) open(b *pages.Budget) (err error) {
	size := sizes(l.cell, &l.o, l.layout)
	if l.turns, err = turns.Open(l.dev, b, size); err != nil {
		return err
	}
	l.memory = l.turns.Memory
	block := l.cell.LatticeBlock(l.o.Seed)
	for _, m := range []struct {
		to    *device.Buffer
		words []uint32
	}{{&l.places, l.layout.Table()}, {&l.params, block}, {&l.tally, make([]uint32, tallyBytes/4)}} {
		if *m.to, err = l.turns.Alloc(int64(4*len(m.words)), "grid"); err != nil {
			return err
		}
		if err := (*m.to).Write(0, device.Bytes(m.words)); err != nil {
			return err
		}
	}
	if l.o.Links != nil {
		alloc := func(bytes int64) (device.Buffer, error) { return l.turns.Alloc(bytes, "graph") }
		if l.wires, err = l.o.Links.Open(l.dev, l.turns.Stream, l.Len(), alloc); err != nil {
			return err
		}
	}
	// Bytes of a page that no agent has are copied with it: they are 0 in both generations.
	if err := l.turns.Other.Fill(0, l.turns.Other.Size(), 0); err != nil {
		return err
	}
	l.single = bytestate.Agents{
		Device: l.dev, Stream: l.turns.Stream, Memory: l.memory, Frames: l.turns.Frames, Count: l.Len(),
		Per: l.layout.Slots * l.layout.Agents, PageBytes: l.layout.PageBytes, States: 256, Invalid: ErrInvalid,
	}
	l.double = l.single
	l.double.Count *= 2
	l.double.Per *= 2
	return errors.Join(l.single.Open(), l.double.Open())
}

// Len returns the number of agents.
func (l *Lattice) Len() int64 { return l.o.agents() }

// Layout returns the place of the state in a page.
func (l *Lattice) Layout() kernels.Layout { return l.layout }

// Memory returns the pages, which belong to the Lattice.
func (l *Lattice) Memory() *pages.Memory { return l.memory }

// Device returns the device of the grid.
func (l *Lattice) Device() device.Device { return l.dev }

// Reset makes all variables 0, and the number of ticks.
func (l *Lattice) Reset(ctx context.Context) error { return l.single.Reset(ctx) }

// Tick makes n steps and returns how many agents vote for each candidate after the last one. It looks at the
// end of ctx after each most steps, and waits for those with the context wait.
func (l *Lattice) Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error) {
	if n < 1 || most < 1 {
		return nil, fmt.Errorf("%w: %d ticks, %d at a time: use 1 or more", ErrInvalid, n, most)
	}
	if err := l.single.Ready(wait); err != nil {
		return nil, err
	}
	l.single.MarkAll()
	if err := l.tally.Fill(0, tallyBytes, 0); err != nil {
		return nil, fault.Mark(err)
	}
	first, err := l.Ticks()
	if err != nil {
		return nil, err
	}
	err = l.turns.Steps(ctx, wait, n, most, func(i int, away bool) error {
		return l.launch(away, first+uint64(i), i == n-1)
	})
	if err != nil {
		return nil, err
	}
	tally = make([]uint64, text.MaxCandidates)
	if err := l.tally.Read(0, device.Bytes(tally)); err != nil {
		return nil, fault.Mark(err)
	}
	return tally[:l.cell.Candidates], nil
}

// Ticks returns how many ticks the agents have made.
func (l *Lattice) Ticks() (uint64, error) {
	if !l.memory.Made()[0] {
		return 0, nil
	}
	var n [1]uint64
	at := int64(l.memory.Frame(0))*int64(l.layout.PageBytes) + int64(l.layout.Offsets[len(l.layout.Vars)-1])
	err := l.memory.Arena().Read(at, device.Bytes(n[:]))
	return n[0], fault.Mark(err)
}

// launch puts a step into the stream: from the pages to the other generation, or back.
func (l *Lattice) launch(away bool, tick uint64, count bool) error {
	from, to := l.turns.Generations(away)
	args := []device.Arg{
		from.Pages, from.Frames, to.Pages, to.Frames, device.Uint32(uint32(l.layout.PageBytes)), device.Ptr(l.places),
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
	return l.turns.Stream.Launch(l.step, l.single.Shape(l.threads()), args...)
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
	if l == nil {
		return nil
	}
	return errors.Join(l.turns.Close(), l.single.Close(), l.double.Close())
}
