package gpuframes

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/tiers"
)

// Pinned are frames of host memory that a device copies from and to at its full rate. Their methods
// may be called from several goroutines at once; callers order accesses to one frame.
type Pinned struct {
	dev device.Device
	slabs[device.HostBuffer]
}

var (
	_ tiers.Mapped  = (*Pinned)(nil)
	_ tiers.Resizer = (*Pinned)(nil)
)

// NewPinned takes the memory. The caller closes it, after the page manager that uses it.
func NewPinned(opts Options) (*Pinned, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pinned{dev: o.Device}
	if err := p.open(o, o.Device.AllocHost); err != nil {
		return nil, err
	}
	return p, nil
}

// Count implements tiers.Frames.
func (p *Pinned) Count() int { return p.count }

// Buffer is the memory of a frame: n bytes at off of h, n being the page size, for kernels that
// reach it over the bus while a page is pinned in the frame; the caller neither closes nor keeps
// it.
func (p *Pinned) Buffer(frame int) (h device.HostBuffer, off int64) { return p.at(frame) }

// Frame implements tiers.Mapped.
func (p *Pinned) Frame(frame int) []byte {
	m, at := p.at(frame)
	return m.Bytes()[at : at+p.pageSize : at+p.pageSize]
}

// Read implements tiers.Frames.
func (p *Pinned) Read(frame int, off int64, dst []byte) error {
	if err := p.check(frame, off, len(dst)); err != nil {
		return err
	}
	copy(dst, p.Frame(frame)[off:])
	return nil
}

// Write implements tiers.Frames.
func (p *Pinned) Write(frame int, off int64, src []byte) error {
	if err := p.check(frame, off, len(src)); err != nil {
		return err
	}
	copy(p.Frame(frame)[off:], src)
	return nil
}

// Resize implements tiers.Resizer. Buffer returns other memory afterwards.
func (p *Pinned) Resize(count int, moves []tiers.Move) error {
	fill := func(to device.HostBuffer, toOff int64, from device.HostBuffer, fromOff, n int64) error {
		copy(to.Bytes()[toOff:toOff+n], from.Bytes()[fromOff:])
		return nil
	}
	return p.resize(count, moves, fill)
}

// Close gives the memory back. A second call does nothing.
func (p *Pinned) Close() error { return p.close() }
