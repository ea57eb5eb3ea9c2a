// Package gpuframes has the frames of a page manager in the memory of a device (Device) and in
// pinned memory of its host (Pinned). A Device copies pages between them: many at once,
// double-buffered on its own streams, with demands ahead of background moves. It uses only
// device.Device, so the host device can take the place of a GPU.
//
// The holder of a pin gets buffer and offset of the page from Buffer and may launch on it until the
// unpin. Sync the stream before the unpin: nothing orders its work with later copies.
package gpuframes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/tiers"
)

// Device are frames of device memory. Their methods may be called from several goroutines at once;
// callers order accesses to one frame.
type Device struct {
	dev device.Device
	slabs[device.Buffer]
	dirs [2]*direction

	mu     sync.RWMutex
	stages map[*byte]device.HostBuffer // by their first byte
	closed atomic.Bool
	// stuck: a copy did not end within the watchdog of the device, so it may still write to its
	// destination.
	stuck atomic.Bool
}

var (
	_ tiers.Copier = (*Device)(nil)
	_ tiers.Stager = (*Device)(nil)
	_ tiers.Zeroer = (*Device)(nil)

	_ tiers.Resizer = (*Device)(nil)
)

// The directions of a copy.
const (
	up = iota
	down
)

// NewDevice takes the memory. The caller closes it, after the page manager that uses it.
func NewDevice(opts Options) (d *Device, err error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	made := &Device{dev: o.Device, stages: map[*byte]device.HostBuffer{}}
	defer func() {
		if d == nil {
			err = errors.Join(err, made.Close())
		}
	}()
	if err := made.open(o, o.Device.Alloc); err != nil {
		return nil, err
	}
	for i := range made.dirs {
		made.dirs[i] = newDirection(o)
	}
	return made, nil
}

// Count implements tiers.Frames.
func (d *Device) Count() int { return d.count }

// Buffer is the device memory of a frame: n bytes at off of b, n being the page size. It is good
// for launches while a page is pinned in the frame; the caller neither closes nor keeps it.
func (d *Device) Buffer(frame int) (b device.Buffer, off int64) { return d.at(frame) }

// Stage implements tiers.Stager.
func (d *Device) Stage() ([]byte, error) {
	h, err := d.dev.AllocHost(d.pageSize, "staging")
	if err != nil {
		return nil, err
	}
	b := h.Bytes()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stages[&b[0]] = h
	return b, nil
}

func (d *Device) staged(b []byte) device.HostBuffer {
	if len(b) == 0 {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.stages[&b[0]]
}

// Read implements tiers.Frames.
func (d *Device) Read(frame int, off int64, dst []byte) error {
	if err := d.check(frame, off, len(dst)); err != nil {
		return err
	}
	if err := d.usable(); err != nil {
		return err
	}
	b, at := d.at(frame)
	if h := d.staged(dst); h != nil {
		return d.one(down, device.Piece{Buffer: b, Off: at + off, Host: h, Bytes: int64(len(dst))})
	}
	return b.Read(at+off, dst)
}

// Write implements tiers.Frames.
func (d *Device) Write(frame int, off int64, src []byte) error {
	if err := d.check(frame, off, len(src)); err != nil {
		return err
	}
	if err := d.usable(); err != nil {
		return err
	}
	b, at := d.at(frame)
	if h := d.staged(src); h != nil {
		return d.one(up, device.Piece{Buffer: b, Off: at + off, Host: h, Bytes: int64(len(src))})
	}
	return b.Write(at+off, src)
}

// Zero implements tiers.Zeroer.
func (d *Device) Zero(frame int) error {
	if err := errors.Join(d.check(frame, 0, 0), d.usable()); err != nil {
		return err
	}
	b, at := d.at(frame)
	return b.Fill(at, d.pageSize, 0)
}

// Resize implements tiers.Resizer. Buffer returns other memory afterwards. It fails with
// device.ErrOutOfMemory if the device has no room for both.
func (d *Device) Resize(count int, moves []tiers.Move) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.resize(count, moves, func(to device.Buffer, toOff int64, from device.Buffer, fromOff, n int64) error {
		return to.Copy(toOff, from, fromOff, n)
	})
}

// usable refuses work after Close and after a copy that may not have ended.
func (d *Device) usable() error {
	switch {
	case d.closed.Load():
		return tiers.ErrClosed
	case d.stuck.Load():
		return fmt.Errorf("a copy has not ended: %w", tiers.ErrUnavailable)
	}
	return nil
}

// Reaches implements tiers.Copier: pinned frames of the same device and page size.
func (d *Device) Reaches(other tiers.Frames) bool {
	p, ok := other.(*Pinned)
	return ok && p.dev == d.dev && p.pageSize == d.pageSize
}

// CopyIn implements tiers.Copier.
func (d *Device) CopyIn(ctx context.Context, from tiers.Frames, moves []tiers.Move, u tiers.Urgency) error {
	return d.copy(ctx, up, from, moves, u)
}

// CopyOut implements tiers.Copier.
func (d *Device) CopyOut(ctx context.Context, to tiers.Frames, moves []tiers.Move, u tiers.Urgency) error {
	return d.copy(ctx, down, to, moves, u)
}

// copy copies pages between this device and pinned frames.
func (d *Device) copy(ctx context.Context, dir int, other tiers.Frames, moves []tiers.Move, u tiers.Urgency) error {
	if !d.Reaches(other) {
		return fmt.Errorf("copy from or to %T: %w", other, tiers.ErrInvalid)
	}
	p := other.(*Pinned)
	for _, mv := range moves {
		here, there := mv.To, mv.From
		if dir == down {
			here, there = mv.From, mv.To
		}
		if err := errors.Join(d.check(here, 0, 0), p.check(there, 0, 0)); err != nil {
			return err
		}
	}
	if err := d.usable(); err != nil {
		return err
	}
	l, err := d.dirs[dir].take(ctx, u)
	if err != nil {
		return err
	}
	l.pieces = l.pieces[:0]
	for _, mv := range moves {
		here, there := mv.To, mv.From
		if dir == down {
			here, there = mv.From, mv.To
		}
		b, off := d.at(here)
		h, hostOff := p.at(there)
		l.pieces = append(l.pieces, device.Piece{Buffer: b, Off: off, Host: h, HostOff: hostOff, Bytes: d.pageSize})
	}
	return d.run(ctx, dir, l, u)
}

func (d *Device) one(dir int, piece device.Piece) error {
	l, err := d.dirs[dir].take(context.Background(), tiers.Demand)
	if err != nil {
		return err
	}
	l.pieces = append(l.pieces[:0], piece)
	return d.run(context.Background(), dir, l, tiers.Demand)
}

// run copies the pieces of a lane and gives the lane back.
func (d *Device) run(ctx context.Context, dir int, l *lane, u tiers.Urgency) error {
	err := l.copy(ctx, dir, d.dirs[dir], u)
	if errors.Is(err, device.ErrTimeout) {
		d.stuck.Store(true)
	}
	d.dirs[dir].give(l, u)
	if err != nil {
		return fmt.Errorf("copy %d pages %s: %w", len(l.pieces), [...]string{"up", "down"}[dir], err)
	}
	return nil
}

// Close gives the memory back once the copies that run have ended. A second call does nothing.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, dir := range d.dirs {
		if dir != nil {
			errs = append(errs, dir.close())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.stages {
		errs = append(errs, h.Close())
	}
	d.stages = map[*byte]device.HostBuffer{}
	errs = append(errs, d.close())
	return errors.Join(errs...)
}

// yield is the time for which a background copy lets demands go first between two of its halves:
// the time of a demand of a dozen pages. A steady stream of demands slows a background copy down,
// but does not stop it.
const yield = time.Millisecond

// calm is the time after a demand in which background copies go page by page. A process whose
// demands are further apart waits, now and then, for less than one background page.
const calm = 10 * time.Millisecond
