// Package team opens the devices of a shard whose ticks run on several devices, with a stream and
// scratch memory on each. The first device has the pages of the shard. The others, its members, have a
// part of the state during a tick.
package team

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// MaxDevices is the most devices of a team.
const MaxDevices = 8

// Member is a device of a team beside the first one. Its device is of the same kind as the first one
// and belongs to the caller, who closes it after the seats.
type Member struct {
	Device device.Device
	// Budget is the memory for pages on the device; nil: all of it.
	Budget *pages.Budget
}

// Error is an error of a member. It wraps what the device has said.
type Error struct {
	Device device.Device
	Err    error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s, which shares the ticks: %v", e.Device.Properties().Name, e.Err)
}

// Unwrap returns the error of the device.
func (e *Error) Unwrap() error { return e.Err }

// Seat is what a shard has on a device of its team: a stream, and memory of so many bytes as Open was
// asked for. One goroutine uses a seat.
type Seat struct {
	Device device.Device
	Stream device.Stream
	Memory device.Buffer

	member     bool
	reached    device.Event // the point of the stream that others wait for
	allocation *pages.Allocation
	close      []func() error // in this order
}

// First returns the seat of the first device. Its stream and memory belong to the caller.
func First(d device.Device, s device.Stream, m device.Buffer) (*Seat, error) {
	e, err := d.NewEvent()
	if err != nil {
		return nil, fault.Mark(err)
	}
	return &Seat{Device: d, Stream: s, Memory: m, reached: e, close: []func() error{e.Close}}, nil
}

// Open opens seats at members, each with the bytes that a seat takes if so many devices share the
// shard, the first one included. A member without room for them is left out. Other errors of a member
// are an *Error, and no seat is open then.
func Open(members []Member, bytes func(devices int) int64) (seats []*Seat, err error) {
	for n := min(len(members)+1, MaxDevices); n > 1; n-- {
		for _, m := range members {
			s, err := open(m, bytes(n))
			if errors.Is(err, device.ErrOutOfMemory) {
				continue
			}
			if err != nil {
				return nil, errors.Join(err, Close(seats))
			}
			if seats = append(seats, s); len(seats) == n-1 {
				return seats, nil
			}
		}
		err := Close(seats)
		if seats = nil; err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// open opens a seat at a member.
func open(m Member, bytes int64) (s *Seat, err error) {
	s = &Seat{Device: m.Device, member: true}
	defer func() {
		if err != nil {
			err = s.Fail(errors.Join(err, s.Close()))
			s = nil
		}
	}()
	if s.allocation, err = m.Budget.Take(bytes); err != nil {
		return s, err
	}
	if s.Memory, err = m.Device.Alloc(bytes, "team"); err != nil {
		return s, err
	}
	s.close = append(s.close, s.Memory.Close)
	if s.Stream, err = m.Device.NewStream(); err != nil {
		return s, err
	}
	s.close = append([]func() error{s.Stream.Close}, s.close...) // it waits for the work that uses the memory
	if s.reached, err = m.Device.NewEvent(); err != nil {
		return s, err
	}
	s.close = append(s.close, s.reached.Close)
	return s, nil
}

// Fail marks an error of the device, and says of which.
func (s *Seat) Fail(err error) error {
	if err == nil {
		return nil
	}
	if err = fault.Mark(err); s.member {
		err = &Error{s.Device, err}
	}
	return err
}

// Range returns a part of the memory as an argument of kernels.
func (s *Seat) Range(off, bytes int64) device.Arg { return device.Range(s.Memory, off, bytes) }

// Meet lets the further work of the seats of a team begin when the work so far of those they name is
// done. of returns the seats that seat number i waits for.
func Meet(seats []*Seat, of func(i int) []*Seat) error {
	for _, s := range seats {
		if err := s.Stream.Record(s.reached); err != nil {
			return s.Fail(err)
		}
	}
	for i, s := range seats {
		for _, o := range of(i) {
			if o == s {
				continue
			}
			if err := s.Stream.Wait(o.reached); err != nil {
				return s.Fail(err)
			}
		}
	}
	return nil
}

// Devices returns the devices of seats.
func Devices(seats []*Seat) (all []device.Device) {
	for _, s := range seats {
		all = append(all, s.Device)
	}
	return all
}

// Stop waits for the work of the streams of seats and closes them. It returns all errors.
func Stop(seats []*Seat) error {
	var errs []error
	for _, s := range seats {
		errs = append(errs, s.Stream.Close())
	}
	return errors.Join(errs...)
}

// Close closes seats. It returns all errors, and a second call does nothing.
func Close(seats []*Seat) error {
	var errs []error
	for _, s := range seats {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Close releases what the seat has on the device, after the work of its stream. A second call does
// nothing.
func (s *Seat) Close() error {
	var errs []error
	for _, release := range s.close {
		errs = append(errs, release())
	}
	s.close = nil
	s.allocation.Release()
	return errors.Join(errs...)
}

// align is a multiple of device.RangeAlign, and of the lines of caches.
const align = 256

// Aligned returns a number of bytes rounded up, so that a part behind so many bytes can be the argument
// of a kernel.
func Aligned(bytes int64) int64 { return (bytes + align - 1) / align * align }
