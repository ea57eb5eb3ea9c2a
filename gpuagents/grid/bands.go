package grid

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// bands are the rows of a grid on several devices, in a tick that these make together. A device has a
// band of consecutive rows, and up to ghost rows of its neighbours on both sides. Outside of these rows
// its kernel finds wrong cells, so that after i generations the outer i ghost rows are wrong. After
// ghost generations the devices give each other the rows that they need.
type bands struct {
	p     *Plane
	seats []*team.Seat
	all   []*band // by seat
	ghost int64
	marks [2]device.Event // of the stream of the first device, after batches of generations in turns
}

// band is the rows of a device, in two generations in turns. Cell x of row y of the window, which is the
// band and its ghost rows, stands at byte y*width+x: a window is one page.
type band struct {
	first, rows  int64 // of the grid
	above, below int64 // ghost rows
	window       int64 // bytes of a generation
	places       device.Arg
	at           int // the generation that is valid
	life         device.Kernel
}

// ghostFor returns how many generations are made between two exchanges of rows. An exchange takes some
// 30 us, and a ghost row as long as any other in each generation: 2 bytes a cell at some 3.4 TB/s. The
// sum is the least at the root of exchange/(2*row).
func ghostFor(width int64) int64 {
	row := 2 * float64(width) / 3.4e12
	return max(4, min(256, int64(math.Sqrt(30e-6/(2*row)))))
}

// split returns the bands of so many devices, with the number of ghost rows; nil: there are fewer rows
// than devices, or a window has 2^32 cells or more.
func split(o *Options, devices int) (all []*band, ghost int64) {
	n := int64(devices)
	if n < 2 || o.Height < n {
		return nil, 0
	}
	ghost = min(ghostFor(o.Width), o.Height/n)
	for i := range n {
		b := &band{first: i * o.Height / n, above: ghost, below: ghost}
		b.rows = (i+1)*o.Height/n - b.first
		if i == 0 && !o.Periodic {
			b.above = 0
		}
		if i == n-1 && !o.Periodic {
			b.below = 0
		}
		b.window = (b.above + b.rows + b.below) * o.Width
		if b.window > math.MaxUint32 {
			return nil, 0
		}
		all = append(all, b)
	}
	return all, ghost
}

// windows returns the bytes of the two generations of the largest window, for so many devices.
func windows(o *Options, devices int) (bytes int64) {
	all, _ := split(o, devices)
	for _, b := range all {
		bytes = max(bytes, 2*team.Aligned(b.window))
	}
	return bytes
}

// firstBytes returns the bytes of the generation beside the pages, which is so many bytes, and in which
// the first device has its two windows.
func firstBytes(o *Options, pages int64) int64 {
	for n := 2; n <= min(o.Devices, team.MaxDevices); n++ {
		pages = max(pages, windows(o, n))
	}
	return pages
}

// MemberBytes returns what a grid has on each further device if so many devices share it; 0: so many
// cannot.
func MemberBytes(o Options, devices int) int64 { return memberBytes(&o, devices) }

// memberBytes is MemberBytes: the windows, and a table of one frame.
func memberBytes(o *Options, devices int) int64 {
	bytes := windows(o, devices)
	if bytes == 0 {
		return 0
	}
	return bytes + team.Aligned(4)
}

// openBands opens the seats of the team; nil: one device has the grid alone.
func (p *Plane) openBands() (err error) {
	o := &p.o
	if o.Devices > 1 {
		if p.living, err = openLiving(p); err != nil {
			return err
		}
	}
	if o.Members = o.Members[:min(len(o.Members), max(0, o.Devices-1))]; len(o.Members) == 0 {
		return nil
	}
	members := o.Members
	for len(members) > 0 && windows(o, len(members)+1) == 0 {
		members = members[:len(members)-1]
	}
	seats, err := team.Open(members, func(n int) int64 { return memberBytes(o, n) })
	if err != nil || len(seats) == 0 {
		return err
	}
	// All streams end before memory is released that one of them uses.
	p.turns.Before(func() error { return team.Stop(seats) })
	p.turns.After(func() error { return team.Close(seats) })
	first, err := team.First(p.dev, p.stream, p.other)
	if err != nil {
		return err
	}
	p.turns.After(first.Close)
	b := &bands{p: p, seats: append([]*team.Seat{first}, seats...)}
	b.all, b.ghost = split(o, len(b.seats))
	for i := range b.marks {
		if b.marks[i], err = p.dev.NewEvent(); err != nil {
			return fault.Mark(err)
		}
		p.turns.After(b.marks[i].Close)
	}
	for i, s := range b.seats {
		t := b.all[i]
		if t.life, err = s.Device.Kernel(b.kernel()); err != nil {
			return s.Fail(err)
		}
		if t.places = device.Ptr(p.places); i == 0 {
			continue
		}
		off := windows(o, len(b.seats))
		if err := s.Memory.Write(off, device.Bytes([]uint32{0})); err != nil {
			return s.Fail(err)
		}
		t.places = s.Range(off, 4)
	}
	p.bands = b
	return nil
}

// kernel returns the name of the kernel that makes the generations of windows: they are whole rows.
func (b *bands) kernel() string {
	if gridset.Chunked(int(b.p.o.Width), int(b.p.o.Width)) {
		return gridset.LifeRows
	}
	return gridset.LifeCells
}

// around returns the seats whose rows are beside those of seat i.
func (b *bands) around(i int) []*team.Seat {
	n := len(b.seats)
	return []*team.Seat{b.seats[(i+n-1)%n], b.seats[(i+1)%n]}
}

// everyone returns all seats.
func (b *bands) everyone(int) []*team.Seat { return b.seats }

// tick makes n generations of the pages. Its arguments are those of Plane.Tick.
func (b *bands) tick(ctx, wait context.Context, n, most int) error {
	if err := b.p.sync(wait); err != nil { // the other streams read the pages
		return err
	}
	if err := b.move(ctx, wait, n, most); err != nil {
		return errors.Join(err, b.sync(wait))
	}
	return b.sync(wait)
}

// move puts the work of a tick into the streams.
func (b *bands) move(ctx, wait context.Context, n, most int) error {
	for i, t := range b.all {
		t.at = 0
		if err := b.load(i); err != nil {
			return err
		}
	}
	if err := team.Meet(b.seats, b.everyone); err != nil { // before anybody writes the pages
		return err
	}
	for done, batch := 0, 0; done < n; batch++ {
		if err := b.pace(ctx, wait, batch); err != nil {
			return err
		}
		if batch > 0 {
			if err := b.exchange(); err != nil {
				return err
			}
		}
		steps := min(n-done, max(1, most/2), int(b.ghost)) // two batches are in the streams
		for range steps {
			for i := range b.all {
				if err := b.step(i); err != nil {
					return err
				}
			}
		}
		done += steps
		if err := b.seats[0].Stream.Record(b.marks[batch%len(b.marks)]); err != nil {
			return fault.Mark(err)
		}
	}
	for i := range b.all {
		if err := b.store(i); err != nil {
			return err
		}
	}
	return nil
}

// pace waits before a batch until the first device has made the last but one, so that the streams do not
// run empty, and looks at the end of ctx.
func (b *bands) pace(ctx, wait context.Context, batch int) error {
	if batch >= len(b.marks) {
		if err := b.marks[batch%len(b.marks)].Sync(wait); err != nil {
			return fault.Mark(err)
		}
	}
	return context.Cause(ctx)
}

// sync waits for all work of the streams.
func (b *bands) sync(ctx context.Context) error {
	var errs []error
	for _, s := range b.seats {
		errs = append(errs, s.Fail(s.Stream.Sync(ctx)))
	}
	return errors.Join(errs...)
}

// generation returns where a generation of a window begins in the memory of its seat.
func (t *band) generation(i int) int64 { return int64(i%2) * team.Aligned(t.window) }

// row returns where a row of the grid, counted from the first of the band, stands in the valid generation.
func (t *band) row(y, width int64) int64 { return t.generation(t.at) + (t.above+y)*width }

// load copies the rows of a window from the pages.
func (b *bands) load(i int) error {
	t, s, width, height := b.all[i], b.seats[i], b.p.o.Width, b.p.o.Height
	for y := -t.above; y < t.rows+t.below; {
		from := (t.first + y + height) % height
		n := min(t.rows+t.below-y, height-from) // rows up to the last one of the grid
		at := t.row(y, width)
		err := b.p.states.Pieces(from*width, n*width, func(place, off, bytes int64) error {
			return s.Stream.Copy(s.Memory, at+off, b.p.memory.Arena(), place, bytes)
		})
		if err != nil {
			return s.Fail(err)
		}
		y += n
	}
	return nil
}

// store copies the rows of a band into the pages.
func (b *bands) store(i int) error {
	t, s, width := b.all[i], b.seats[i], b.p.o.Width
	at := t.row(0, width)
	return s.Fail(b.p.states.Pieces(t.first*width, t.rows*width, func(place, off, bytes int64) error {
		return s.Stream.Copy(b.p.memory.Arena(), place, s.Memory, at+off, bytes)
	}))
}

// step puts a generation of a band into its stream.
func (b *bands) step(i int) error {
	t, s, o := b.all[i], b.seats[i], &b.p.o
	rows := t.window / o.Width
	args := gridset.LifeArgs{
		From: s.Range(t.generation(t.at), t.window), FromFrames: t.places,
		To: s.Range(t.generation(t.at+1), t.window), ToFrames: t.places,
		PageBytes: uint64(t.window), Per: uint32(t.window), Width: uint32(o.Width), Height: uint32(rows),
		Periodic: device.Bit(o.Periodic), Alive: t.places, // nothing is counted
	}
	shape := bytestate.ShapeOn(s.Device, gridset.LifeThreads(b.kernel(), int(o.Width), int(rows), int(t.window)))
	t.at = 1 - t.at
	return s.Fail(s.Stream.Launch(t.life, shape, args.Args()...))
}

// exchange copies the rows at the edges of all bands to the ghost rows beside them.
func (b *bands) exchange() error {
	if err := team.Meet(b.seats, b.around); err != nil { // the neighbours have made their generations
		return err
	}
	n, width := len(b.all), b.p.o.Width
	for i, t := range b.all {
		s := b.seats[i]
		if before := b.all[(i+n-1)%n]; t.above > 0 {
			from := before.row(before.rows-t.above, width)
			if err := s.Stream.Copy(s.Memory, t.row(-t.above, width), b.seats[(i+n-1)%n].Memory, from,
				t.above*width); err != nil {
				return s.Fail(err)
			}
		}
		if t.below > 0 {
			from := b.all[(i+1)%n].row(0, width)
			if err := s.Stream.Copy(s.Memory, t.row(t.rows, width), b.seats[(i+1)%n].Memory, from,
				t.below*width); err != nil {
				return s.Fail(err)
			}
		}
	}
	return team.Meet(b.seats, b.around) // the rows are read before they are overwritten
}

// speed is what decides whether devices share a tick.
type speed struct {
	cells  float64       // that a device makes in a second
	launch time.Duration // the least time of a generation
	link   team.Link
}

// gains reports whether n generations of some cells take less time on several devices than on one. It
// changes no bit.
func (v speed) gains(cells int64, devices, n int, ghost int64) bool {
	took := func(cells float64) float64 { return max(cells/v.cells, v.launch.Seconds()) }
	part := float64(cells) / float64(devices)
	exchanges := float64((n - 1) / int(ghost))
	all := float64(n)*took(part) + exchanges*v.link.Meet.Seconds() + v.link.Begin(2*(float64(cells)-part))
	return all < float64(n)*took(float64(cells))
}

// Cells that a device makes in a second: an H200 (RFC 0042), and a core of the host device.
const (
	cellsOnGPU  = 1.7e12
	cellsOnHost = 7e8
)

// gains reports whether the team makes n generations faster than the first device.
func (b *bands) gains(n int) bool {
	v := speed{cellsOnGPU, 5 * time.Microsecond, team.LinkOf(b.seats)}
	if b.p.dev.Properties().ComputeMajor == 0 {
		v.cells = cellsOnHost
	}
	return v.gains(b.p.Len(), len(b.seats), n, b.ghost)
}
