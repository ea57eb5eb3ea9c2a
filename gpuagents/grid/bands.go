package grid

import (
	"context"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// bands are the rows of a grid on several devices during ticks. A device has a band of consecutive
// rows, and up to ghost rows of its neighbours on both sides. Beyond these rows its kernel reads
// wrong cells, so after i generations the outer i ghost rows are wrong. After ghost generations the
// devices exchange rows.
type bands struct {
	*field.Devices
	p     *Plane
	bands []*band // by device
	ghost int64
}

// band is the rows of a device, double-buffered. Cell x of row y of the window, which is the
// band and its ghost rows, stands at byte y*width+x: a window is one page.
type band struct {
	first, rows  int64 // of the grid
	above, below int64 // ghost rows
	window       int64 // bytes of a generation
	places       device.Arg
	at           int // the generation that is valid
	life         device.Kernel
}

// ghostFor returns the number of generations between two exchanges of rows. An exchange takes about
// 30 us. A ghost row costs as much as any row in each generation: 2 bytes a cell at about 3.4 TB/s.
// The sum has its minimum at the root of exchange/(2*row).
func ghostFor(width int64) int64 {
	row := 2 * float64(width) / 3.4e12
	return max(4, min(256, int64(math.Sqrt(30e-6/(2*row)))))
}

// split returns a band for each device, and the number of ghost rows; nil: there are fewer rows
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

// windows returns the bytes of the two generations of the largest window for a number of devices.
func windows(o *Options, devices int) (bytes int64) {
	all, _ := split(o, devices)
	for _, b := range all {
		bytes = max(bytes, 2*field.Aligned(b.window))
	}
	return bytes
}

// windowBytes returns the most bytes of the two windows of the first device, which has them in the
// second generation of its pages.
func windowBytes(o *Options) (bytes int64) {
	for n := 2; n <= min(o.Devices, field.MaxDevices); n++ {
		bytes = max(bytes, windows(o, n))
	}
	return bytes
}

// PeerBytes returns the memory of each further device for a number of devices, in bytes; 0: they
// are too many.
func PeerBytes(o Options, devices int) int64 { return peerBytes(&o, devices) }

// peerBytes is PeerBytes: the windows, and a table of one frame.
func peerBytes(o *Options, devices int) int64 {
	bytes := windows(o, devices)
	if bytes == 0 {
		return 0
	}
	return bytes + field.Aligned(4)
}

// openBands opens the devices of the grid; p.bands is nil if one device makes all ticks.
func (p *Plane) openBands() (err error) {
	o := &p.o
	if o.Devices > 1 {
		if p.living, err = openLiving(p); err != nil {
			return err
		}
	}
	d, err := p.OpenDevices(o.Peers, o.Devices, p.Second, func(n int) int64 { return peerBytes(o, n) })
	if err != nil || d == nil {
		return err
	}
	b := &bands{p: p, Devices: d}
	b.bands, b.ghost = split(o, len(b.All))
	for i, on := range b.All {
		t := b.bands[i]
		if t.life, err = on.Device.Kernel(b.kernel()); err != nil {
			return on.Fail(err)
		}
		if t.places = device.Ptr(p.SecondFrames); i == 0 {
			continue
		}
		off := windows(o, len(b.All))
		if err := on.Memory.Write(off, device.Bytes([]uint32{0})); err != nil {
			return on.Fail(err)
		}
		t.places = on.Range(off, 4)
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

// around returns the devices with the rows next to the band of device i.
func (b *bands) around(i int) []*field.Device {
	n := len(b.All)
	return []*field.Device{b.All[(i+n-1)%n], b.All[(i+1)%n]}
}

func (b *bands) tick(ctx, wait context.Context, n, most int) error {
	if err := b.p.Sync(wait); err != nil { // the other streams read the pages
		return err
	}
	return b.Run(wait, func() error { return b.put(ctx, wait, n, most) })
}

func (b *bands) put(ctx, wait context.Context, n, most int) error {
	for i, t := range b.bands {
		t.at = 0
		if err := b.load(i); err != nil {
			return err
		}
	}
	if err := b.Barrier(b.Everyone); err != nil { // before anybody writes the pages
		return err
	}
	batch := min(max(1, most/2), int(b.ghost))
	if err := b.Steps(ctx, wait, n, batch, func(k int) error {
		if k == 0 || k%batch != 0 {
			return nil
		}
		return b.exchange()
	}, func(i, _ int) error { return b.step(i) }); err != nil {
		return err
	}
	for i := range b.bands {
		if err := b.store(i); err != nil {
			return err
		}
	}
	return nil
}

// generation returns where a generation of a window begins in the memory of its device.
func (t *band) generation(i int) int64 { return int64(i%2) * field.Aligned(t.window) }

// row returns where a row of the grid, counted from the first of the band, stands in the valid
// generation.
func (t *band) row(y, width int64) int64 { return t.generation(t.at) + (t.above+y)*width }

func (b *bands) load(i int) error {
	t, s, width, height := b.bands[i], b.All[i], b.p.o.Width, b.p.o.Height
	for y := -t.above; y < t.rows+t.below; {
		from := (t.first + y + height) % height
		n := min(t.rows+t.below-y, height-from) // rows up to the last one of the grid
		at := t.row(y, width)
		err := b.p.Columns.Pieces(from*width, n*width, func(place, off, bytes int64) error {
			return s.Stream.Copy(s.Memory, at+off, b.p.Memory().Arena(), place, bytes)
		})
		if err != nil {
			return s.Fail(err)
		}
		y += n
	}
	return nil
}

func (b *bands) store(i int) error {
	t, s, width := b.bands[i], b.All[i], b.p.o.Width
	at := t.row(0, width)
	return s.Fail(b.p.Columns.Pieces(t.first*width, t.rows*width, func(place, off, bytes int64) error {
		return s.Stream.Copy(b.p.Memory().Arena(), place, s.Memory, at+off, bytes)
	}))
}

func (b *bands) step(i int) error {
	t, s, o := b.bands[i], b.All[i], &b.p.o
	rows := t.window / o.Width
	args := gridset.LifeArgs{
		From: s.Range(t.generation(t.at), t.window), FromFrames: t.places,
		To: s.Range(t.generation(t.at+1), t.window), ToFrames: t.places,
		PageBytes: uint64(t.window), Per: uint32(t.window), Width: uint32(o.Width), Height: uint32(rows),
		Periodic: device.Bit(o.Periodic), Alive: t.places, // nothing is counted
	}
	shape := field.ShapeOn(s.Device, gridset.LifeThreads(b.kernel(), int(o.Width), int(rows), int(t.window)))
	t.at = 1 - t.at
	return s.Fail(s.Stream.Launch(t.life, shape, args.Args()...))
}

// exchange copies the rows at the edges of all bands to the ghost rows beside them.
func (b *bands) exchange() error {
	if err := b.Barrier(b.around); err != nil { // the neighbours have made their generations
		return err
	}
	n, width := len(b.bands), b.p.o.Width
	for i, t := range b.bands {
		s := b.All[i]
		if before := b.bands[(i+n-1)%n]; t.above > 0 {
			from := before.row(before.rows-t.above, width)
			if err := s.Stream.Copy(s.Memory, t.row(-t.above, width), b.All[(i+n-1)%n].Memory, from,
				t.above*width); err != nil {
				return s.Fail(err)
			}
		}
		if t.below > 0 {
			from := b.bands[(i+1)%n].row(0, width)
			if err := s.Stream.Copy(s.Memory, t.row(t.rows, width), b.All[(i+1)%n].Memory, from,
				t.below*width); err != nil {
				return s.Fail(err)
			}
		}
	}
	return b.Barrier(b.around) // the rows are read before they are overwritten
}

type speed struct {
	cells  float64       // that a device makes in a second
	launch time.Duration // the least time of a generation
	link   field.Link
}

// gains reports whether n generations of some cells take less time on several devices than on one.
// It changes no bit.
func (v speed) gains(cells int64, devices, n int, ghost int64) bool {
	took := func(cells float64) float64 { return max(cells/v.cells, v.launch.Seconds()) }
	part := float64(cells) / float64(devices)
	exchanges := float64((n - 1) / int(ghost))
	all := float64(n)*took(part) + exchanges*v.link.Barrier.Seconds() + v.link.Fixed(2*(float64(cells)-part))
	return all < float64(n)*took(float64(cells))
}

// Cells that a device makes in a second: an H200 (RFC 0042), and a core of the host device.
const (
	cellsOnGPU  = 1.7e12
	cellsOnHost = 7e8
)

func (b *bands) gains(n int) bool {
	v := speed{cellsOnGPU, 5 * time.Microsecond, b.Link()}
	if b.p.Device().Properties().ComputeMajor == 0 {
		v.cells = cellsOnHost
	}
	return v.gains(b.p.Len(), len(b.All), n, b.ghost)
}
