// Package raster reduces a variable of the agents of a shard to a picture of bounded size.
//
// A picture is a row of cells, each of consecutive agents, with their mean, least and greatest
// value. The device computes it where the pages are, so only cells cross the bus. Pages that are
// not on the device are not brought there: cells keep their last value, and say so.
package raster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// MaxCells is the most cells of a picture: 512 rows of 512.
const MaxCells = 512 * 512

// Var is a variable that can be drawn: elements of a variable of the layout, whose mean is the
// value of an agent or a group.
type Var struct {
	Name         string
	Of           int // index in the layout
	First, Count int // elements
	// Votes says that the element is a candidate plus one, or 0 for an agent that has never voted,
	// which then does not count.
	Votes bool
	// Draw draws a picture of its own of at most a number of cells; nil: the variable is one of the
	// layout. It fills in all of the picture but Variable, Variables, At and Took, and takes some
	// milliseconds at most.
	Draw func(ctx context.Context, cells int) (*Picture, error)
}

// Vars returns the variables of a layout, each with all of its elements.
func Vars(l kernels.Layout) []Var {
	var all []Var
	for i, v := range l.Vars {
		all = append(all, Var{Name: v.Name, Of: i, Count: v.Width, Votes: v.Name == "vote" && v.Elem == kernels.U8})
	}
	return all
}

// States of a cell.
const (
	Whole       = iota // all of its agents are on the device
	Partly             // its value is of the agents on the device
	Kept               // no agent is on the device; its value is from an earlier picture
	NotResident        // none is on the device, and no earlier picture has a value
	NoValue            // none has a value: they were never addressed, or have never voted
)

// Picture is a variable as cells. Slices have an element for each cell. It must not be changed.
type Picture struct {
	Variable string
	// Variables are the names of the variables that can be drawn.
	Variables []string
	// Units is the number of units, and Each is how many agents a unit has: 1, or the agents of a
	// group for a variable of groups. Cell i has the units from i*Per on.
	Units, Each, Per int
	// Columns is the number of cells of a row. It is 0 where cells are consecutive units.
	Columns int
	// Tick is the number of the tick that the last column of a picture over ticks shows, from 1 on.
	Tick              int64
	Mean, Least, Most []float32
	States            []uint8
	// At is when the picture was complete, and Took the time that drawing it took from the shard.
	At   time.Time
	Took time.Duration
}

// Source draws pictures of a shard. The goroutine that uses the Memory uses the Source, and closes
// it before the memory and the device. It allocates nothing before the first picture.
type Source struct {
	dev    device.Device
	memory *pages.Memory
	layout kernels.Layout
	groups int
	vars   []Var

	stream         device.Stream
	kernel         device.Kernel
	frames, values device.Buffer
	counts         device.Buffer
	table          []uint32 // frames, in host memory
	host           []float32
	counted        []uint32
	last           *Picture // whose values are kept
}

// New returns a source of pictures of groups, whose pages are in a memory with a layout.
func New(d device.Device, m *pages.Memory, l kernels.Layout, groups int, vars []Var) *Source {
	return &Source{dev: d, memory: m, layout: l, groups: groups, vars: vars}
}

// Names returns the names of the variables that can be drawn.
func (s *Source) Names() []string {
	names := make([]string, len(s.vars))
	for i, v := range s.vars {
		names[i] = v.Name
	}
	return names
}

// Drawing is a picture under way. Its source draws one at a time.
type Drawing struct {
	source *Source
	v      Var
	of     kernels.Var
	// units is the number of units of a page. per and cells describe the picture. next is the first
	// cell that is not drawn, and slice the number of cells of the next part.
	units, per, cells, next, slice int
	picture                        *Picture
}

// usual are the variables that Begin draws without a name, the first that there is.
var usual = []string{"places", "spikes", "hidden", "potential"}

// preferred returns the variable that is drawn where none is named.
func (s *Source) preferred() string {
	for _, name := range usual {
		if slices.Contains(s.Names(), name) {
			return name
		}
	}
	return s.vars[len(s.vars)-1].Name
}

// Begin begins a picture of a variable, or without a name of the one that tells the most, with at
// most a number of cells, up to MaxCells. An ErrUnknown names the variables that there are.
func (s *Source) Begin(variable string, cells int) (*Drawing, error) {
	if variable == "" && len(s.vars) > 0 {
		variable = s.preferred()
	}
	i := slices.IndexFunc(s.vars, func(v Var) bool { return v.Name == variable })
	if i < 0 {
		return nil, fmt.Errorf("%w %q: there are %v", ErrUnknown, variable, s.Names())
	}
	if cells < 1 || cells > MaxCells {
		return nil, fmt.Errorf("%w: %d cells, want 1 to %d", ErrInvalid, cells, MaxCells)
	}
	v := s.vars[i]
	if v.Draw != nil {
		return &Drawing{source: s, v: v, cells: cells}, nil
	}
	d := &Drawing{source: s, v: v, of: s.layout.Vars[v.Of], units: s.layout.Slots}
	n, each := s.groups, s.layout.Agents
	if !d.of.Group {
		n, each, d.units = s.groups*s.layout.Agents, 1, s.layout.Slots*s.layout.Agents
	}
	d.per = (n + cells - 1) / cells
	d.cells = (n + d.per - 1) / d.per
	d.slice = max(1, firstUnits/d.per)
	d.picture = &Picture{
		Variable: variable, Variables: s.Names(), Units: n, Each: each, Per: d.per, Mean: make([]float32, d.cells),
		Least: make([]float32, d.cells), Most: make([]float32, d.cells), States: make([]uint8, d.cells),
	}
	return d, s.open()
}

const (
	// firstUnits is the number of units of the first part of a picture, which tells how many the
	// next part may have. A core takes some 2 ms for them.
	firstUnits = 1 << 18
	// partTime is how long a part takes at about: the shard applies entries between two parts.
	partTime = 3 * time.Millisecond
)

func (s *Source) open() (err error) {
	if s.stream != nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.kernel, err = s.dev.Kernel("raster"); err != nil {
		return err
	}
	s.table = make([]uint32, s.memory.Count())
	for _, m := range []struct {
		to    *device.Buffer
		bytes int
	}{{&s.frames, 4 * len(s.table)}, {&s.values, 3 * 4 * MaxCells}, {&s.counts, 4 * MaxCells}} {
		if *m.to, err = s.dev.Alloc(int64(m.bytes), "raster"); err != nil {
			return err
		}
	}
	s.host, s.counted = make([]float32, 3*MaxCells), make([]uint32, MaxCells)
	s.stream, err = s.dev.NewStream()
	return err
}

// Part draws the next part of the picture, which takes some milliseconds. It returns nil until the
// picture is complete.
func (d *Drawing) Part(ctx context.Context) (*Picture, error) {
	if d.v.Draw != nil {
		return d.whole(ctx)
	}
	began := time.Now()
	n := min(d.slice, d.cells-d.next)
	if err := d.draw(ctx, n); err != nil {
		return nil, err
	}
	took := time.Since(began)
	d.picture.Took += took
	d.next += n
	d.slice = max(1, int(min(float64(n)*64, float64(n)*float64(partTime)/float64(max(took, 1)))))
	if d.next < d.cells {
		return nil, nil
	}
	d.picture.At = time.Now()
	d.source.last = d.picture
	return d.picture, nil
}

func (d *Drawing) whole(ctx context.Context) (*Picture, error) {
	began := time.Now()
	p, err := d.v.Draw(ctx, d.cells)
	if err != nil {
		return nil, err
	}
	p.Variable, p.Variables, p.At = d.v.Name, d.source.Names(), time.Now()
	p.Took = p.At.Sub(began)
	return p, nil
}

// Counts returns a picture whose cells are numbers, in rows of a number of columns. It keeps
// nothing.
func Counts(counts []uint32, columns int) *Picture {
	p := &Picture{Columns: columns, Units: len(counts), Each: 1, Per: 1, States: make([]uint8, len(counts))}
	for _, n := range counts {
		p.Mean = append(p.Mean, float32(n))
	}
	p.Least, p.Most = p.Mean, p.Mean
	return p
}

// Empty returns a picture of no value.
func Empty() *Picture {
	p := Counts([]uint32{0}, 1)
	p.States[0] = NoValue
	return p
}

func (d *Drawing) draw(ctx context.Context, n int) error {
	s := d.source
	release, err := s.memory.Peek().Present(s.table, kernels.RasterAbsent)
	if err != nil {
		return err
	}
	defer release()
	if err := s.frames.Write(0, device.Bytes(s.table)); err != nil {
		return gpubatch.Mark(err)
	}
	if err := s.launch(d, n); err != nil {
		return gpubatch.Mark(errors.Join(err, s.stream.Sync(context.WithoutCancel(ctx))))
	}
	// To its end: the frames are held until then. The device bounds it.
	if err := s.stream.Sync(context.WithoutCancel(ctx)); err != nil {
		return gpubatch.Mark(err)
	}
	if err := s.values.Read(0, device.Bytes(s.host[:3*n])); err != nil {
		return gpubatch.Mark(err)
	}
	if err := s.counts.Read(0, device.Bytes(s.counted[:n])); err != nil {
		return gpubatch.Mark(err)
	}
	p := d.picture
	copy(p.Mean[d.next:], s.host[:n])
	copy(p.Least[d.next:], s.host[n:2*n])
	copy(p.Most[d.next:], s.host[2*n:3*n])
	for i := range n {
		d.settle(d.next+i, int(s.counted[i]))
	}
	return nil
}

func (s *Source) launch(d *Drawing, n int) error {
	const warps = kernels.RasterBlock / 32
	blocks := (n + warps - 1) / warps
	if p := s.dev.Properties(); p.Multiprocessors > 0 {
		blocks = min(blocks, p.Multiprocessors*rasterBlocks)
	}
	return s.stream.Launch(s.kernel, device.Geometry{Grid: blocks, Block: kernels.RasterBlock}, kernels.RasterArgs{
		Pages: device.Ptr(s.memory.Arena()), PageBytes: uint64(s.layout.PageBytes), Frames: device.Ptr(s.frames),
		Offset: s.layout.Offsets[d.v.Of], Units: uint32(d.units), Width: uint32(d.of.Width),
		Together: device.Bit(d.of.Together), Elem: uint32(d.of.Elem), First: uint32(d.v.First),
		Count: uint32(d.v.Count), Votes: device.Bit(d.v.Votes), N: uint32(d.picture.Units), Per: uint32(d.per),
		Begin: uint32(d.next), Cells: uint32(n), Values: device.Ptr(s.values), Counts: device.Ptr(s.counts),
	}.Args()...)
}

// rasterBlocks is the number of blocks for each multiprocessor: as many as have room at once.
const rasterBlocks = 8

// settle sets the state of a cell by the pages that its units are in.
func (d *Drawing) settle(cell, counted int) {
	s, p := d.source, d.picture
	from := cell * d.per
	end := min(from+d.per, p.Units) - 1
	here, away := false, false // pages on the device, and pages elsewhere
	for page := from / d.units; page <= end/d.units; page++ {
		switch {
		case s.table[page] != kernels.RasterAbsent:
			here = true
		case s.memory.Made()[page]:
			away = true
		}
	}
	switch {
	case counted > 0 && away:
		p.States[cell] = Partly
	case counted > 0:
		p.States[cell] = Whole
	case !away || here:
		p.States[cell] = NoValue
	default:
		p.States[cell] = NotResident
		if old := s.last; old != nil && old.Variable == p.Variable && old.Per == p.Per && old.States[cell] <= Kept {
			p.Mean[cell], p.Least[cell], p.Most[cell] = old.Mean[cell], old.Least[cell], old.Most[cell]
			p.States[cell] = Kept
		}
	}
}

// Close releases what pictures have on the device. A second call does nothing, and so does a call
// for a nil Source.
func (s *Source) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	for _, b := range []device.Buffer{s.frames, s.values, s.counts} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	s.stream, s.frames, s.values, s.counts = nil, nil, nil, nil
	return errors.Join(errs...)
}
