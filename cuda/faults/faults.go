// Package faults has a device whose chosen calls fail, for tests of code that uses devices.
package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Op is a kind of call of a device that can be made to fail.
type Op int

// The kinds of calls.
const (
	Alloc  Op = iota // of device memory, also by a stream
	Pin              // AllocHost
	Launch           // of a kernel
	Copy             // into and out of a stream
	Wait             // Sync and Await of a stream
	Peer             // Copy of a stream, between buffers
	ops
)

// String is what errors name.
func (o Op) String() string { return [...]string{"alloc", "pin", "launch", "copy", "wait", "peer"}[o] }

// Device is a real device. Chosen calls fail before they reach it. A sticky fault and a lost device
// break it: every further call of a kind fails with the same error, and Health says so. Buffers are
// the device's own, so their Read, Write and Fill fail only in what they are there for. Its methods
// may be called from several goroutines.
type Device struct {
	device.Device
	mu     sync.Mutex
	calls  [ops]int
	faults []fault
	broken error
}

// fault fails calls of a kind by their number; they are counted from 1.
type fault struct {
	op          Op
	first, last int
	bytes       int64 // of an alloc: only calls for as many bytes or more
	err         error
}

// New wraps a device, which Close closes.
func New(d device.Device) *Device { return &Device{Device: d} }

// Fail has n calls of a kind fail with err, beginning with the one after the next skip.
func (f *Device) Fail(op Op, skip, n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.calls[op] + skip + 1
	f.faults = append(f.faults, fault{op: op, first: first, last: first + n - 1, err: err})
}

// Room lets every Alloc of more than this number of bytes fail with device.ErrOutOfMemory; 0
// removes the limit.
func (f *Device) Room(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.faults[:0]
	for _, x := range f.faults {
		if x.bytes == 0 {
			kept = append(kept, x)
		}
	}
	if f.faults = kept; bytes > 0 {
		f.faults = append(f.faults, fault{
			op: Alloc, last: int(^uint(0) >> 1), bytes: bytes + 1,
			err: device.ErrOutOfMemory,
		})
	}
}

// Heal ends all faults, also what has broken the device.
func (f *Device) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.broken = nil, nil
}

// Calls is how many calls of a kind there were.
func (f *Device) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// call counts a call and reports whether it fails.
func (f *Device) call(op Op, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	if f.broken != nil {
		return f.broken
	}
	for _, x := range f.faults {
		if n := f.calls[op]; x.op != op || n < x.first || n > x.last || bytes < x.bytes {
			continue
		}
		err := fmt.Errorf("%v %d of %s: %w", op, f.calls[op], f.Properties().Name, x.err)
		if errors.Is(err, device.ErrSticky) || errors.Is(err, device.ErrLost) {
			f.broken = err
		}
		return err
	}
	return nil
}

// Alloc implements device.Device.
func (f *Device) Alloc(n int64, purpose string) (device.Buffer, error) {
	if err := f.call(Alloc, n); err != nil {
		return nil, err
	}
	return f.Device.Alloc(n, purpose)
}

// AllocHost implements device.Device.
func (f *Device) AllocHost(n int64, purpose string) (device.HostBuffer, error) {
	if err := f.call(Pin, n); err != nil {
		return nil, err
	}
	return f.Device.AllocHost(n, purpose)
}

// NewStream implements device.Device.
func (f *Device) NewStream() (device.Stream, error) { return f.stream(f.Device.NewStream()) }

// NewBackgroundStream implements device.Device.
func (f *Device) NewBackgroundStream() (device.Stream, error) {
	return f.stream(f.Device.NewBackgroundStream())
}

func (f *Device) stream(s device.Stream, err error) (device.Stream, error) {
	if err != nil {
		return nil, err
	}
	return &stream{s, f}, nil
}

// Health implements device.Device.
func (f *Device) Health(ctx context.Context, claims ...device.Claim) device.Health {
	h := f.Device.Health(ctx, claims...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		h.Note(device.Failed, "%v", f.broken)
	}
	return h
}

type stream struct {
	device.Stream
	of *Device
}

// Launch implements device.Stream.
func (s *stream) Launch(k device.Kernel, g device.Geometry, args ...device.Arg) error {
	if err := s.of.call(Launch, 0); err != nil {
		return err
	}
	return s.Stream.Launch(k, g, args...)
}

// Alloc implements device.Stream.
func (s *stream) Alloc(n int64, purpose string) (device.Buffer, error) {
	if err := s.of.call(Alloc, n); err != nil {
		return nil, err
	}
	return s.Stream.Alloc(n, purpose)
}

// Upload implements device.Stream.
func (s *stream) Upload(dst device.Buffer, dstOff int64, src device.HostBuffer, srcOff, n int64) error {
	if err := s.of.call(Copy, 0); err != nil {
		return err
	}
	return s.Stream.Upload(dst, dstOff, src, srcOff, n)
}

// Download implements device.Stream.
func (s *stream) Download(dst device.HostBuffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	if err := s.of.call(Copy, 0); err != nil {
		return err
	}
	return s.Stream.Download(dst, dstOff, src, srcOff, n)
}

// Copy implements device.Stream.
func (s *stream) Copy(dst device.Buffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	if err := s.of.call(Peer, 0); err != nil {
		return err
	}
	return s.Stream.Copy(dst, dstOff, src, srcOff, n)
}

// UploadAll implements device.Stream.
func (s *stream) UploadAll(pieces []device.Piece) error {
	if err := s.of.call(Copy, 0); err != nil {
		return err
	}
	return s.Stream.UploadAll(pieces)
}

// DownloadAll implements device.Stream.
func (s *stream) DownloadAll(pieces []device.Piece) error {
	if err := s.of.call(Copy, 0); err != nil {
		return err
	}
	return s.Stream.DownloadAll(pieces)
}

// Sync implements device.Stream. The work is done also where the wait fails.
func (s *stream) Sync(ctx context.Context) error {
	return errors.Join(s.Stream.Sync(ctx), s.of.call(Wait, 0))
}

// Await implements device.Stream. The work is done also where the wait fails.
func (s *stream) Await(ctx context.Context, flag device.HostBuffer, off int64, want uint32) error {
	return errors.Join(s.Stream.Await(ctx, flag, off, want), s.of.call(Wait, 0))
}
