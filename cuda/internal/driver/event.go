//go:build cuda

package driver

/*
#cgo nocallback exo_event_record
#cgo nocallback exo_event_wait
#cgo nocallback exo_event_poll
#include "supplement.h"
*/
import "C"

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// event is a CUDA event with timing.
type event struct {
	dev      *Device
	raw      C.CUevent
	recorded atomic.Bool

	mu     sync.RWMutex // held for reading during a call, so that Close waits for it
	closed atomic.Bool
}

// NewEvent makes an event.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.acquire("new event"); err != nil {
		return nil, err
	}
	defer d.life.RUnlock()
	e := &event{dev: d}
	if err := d.fail(C.exo_event_create(d.raw, &e.raw), "cuEventCreate"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[e] = "event"
	return e, nil
}

// begin holds the event's device and the event for one call.
func (e *event) begin(op string) error {
	if err := e.dev.acquire(op); err != nil {
		return err
	}
	if err := e.enter(op); err != nil {
		e.dev.life.RUnlock()
		return err
	}
	return nil
}

// enter is begin for a caller that holds the device.
func (e *event) enter(op string) error {
	e.mu.RLock()
	if e.closed.Load() {
		e.mu.RUnlock()
		return fmt.Errorf("%s: event: %w", op, device.ErrClosed)
	}
	return nil
}

func (e *event) end() {
	e.mu.RUnlock()
	e.dev.life.RUnlock()
}

// Record marks the point.
func (s *stream) Record(ev device.Event) error {
	e, ok := ev.(*event)
	if !ok || e == nil || e.dev != s.dev {
		return s.note(fmt.Errorf("record on %s: an event of another device: %w", s.dev.props.Name,
			device.ErrInvalidArgument))
	}
	if err := s.beginPlain("record"); err != nil {
		return err
	}
	defer s.end()
	if err := e.enter("record"); err != nil {
		return err
	}
	defer e.mu.RUnlock()
	if r := C.exo_event_record(s.dev.raw, e.raw, s.raw); r != C.CUDA_SUCCESS {
		return s.tell(s.dev.fail(r, "cuEventRecord"))
	}
	e.recorded.Store(true)
	return nil
}

// Wait makes the stream wait.
func (s *stream) Wait(ev device.Event) error {
	e, ok := ev.(*event)
	if !ok || e == nil {
		return s.note(fmt.Errorf("wait on %s: an event of another kind of device: %w", s.dev.props.Name,
			device.ErrInvalidArgument))
	}
	unlock, err := pair("wait", s.dev, e.dev)
	if err != nil {
		return s.note(err)
	}
	defer unlock()
	if err := s.enter("wait"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.recording != nil {
		return s.recording.note(fmt.Errorf("wait in a capture: %w", device.ErrInvalidArgument))
	}
	if err := e.enter("wait"); err != nil {
		return err
	}
	defer e.mu.RUnlock()
	if !e.recorded.Load() {
		return nil
	}
	if r := C.exo_event_wait(s.dev.raw, s.raw, e.raw); r != C.CUDA_SUCCESS {
		return s.tell(s.dev.fail(r, "cuStreamWaitEvent"))
	}
	return nil
}

// Done queries the driver.
func (e *event) Done() (bool, error) {
	r, err := e.poll(0, 0)
	return r == C.CUDA_SUCCESS && err == nil, err
}

// Sync waits for the point.
func (e *event) Sync(ctx context.Context) error {
	pause, start := spin, time.Now()
	for {
		r, err := e.poll(pause, glance)
		if err != nil || r == C.CUDA_SUCCESS {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sync an event on %s: %w", e.dev.props.Name, err)
		}
		if err := e.dev.late("sync an event", start); err != nil {
			return err
		}
		pause = 0
	}
}

func (e *event) poll(spin, limit time.Duration) (C.CUresult, error) {
	if err := e.begin("query an event"); err != nil {
		return 0, err
	}
	defer e.end()
	r := C.exo_event_poll(e.dev.raw, e.raw, C.int64_t(spin), C.int64_t(limit))
	if r == C.CUDA_ERROR_NOT_READY {
		return r, nil
	}
	return r, e.dev.fail(r, "cuEventQuery")
}

// Since queries the driver for the time between two events.
func (e *event) Since(earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from == nil || from.dev != e.dev {
		return 0, fmt.Errorf("time between events: of another device: %w", device.ErrInvalidArgument)
	}
	if err := e.begin("time between events"); err != nil {
		return 0, err
	}
	defer e.end()
	if from != e {
		if err := from.enter("time between events"); err != nil {
			return 0, err
		}
		defer from.mu.RUnlock()
	}
	if !from.recorded.Load() || !e.recorded.Load() {
		return 0, fmt.Errorf("time between events: one was never recorded: %w", device.ErrInvalidArgument)
	}
	var ms C.float
	if err := e.dev.fail(C.exo_event_time(e.dev.raw, &ms, from.raw, e.raw), "cuEventElapsedTime"); err != nil {
		return 0, err
	}
	return time.Duration(float64(ms) * 1e6), nil
}

// Close destroys the event.
func (e *event) Close() error {
	d := e.dev
	d.life.RLock()
	defer d.life.RUnlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Swap(true) {
		return nil
	}
	d.forget(e)
	if d.broken.Load() != nil {
		return nil
	}
	return d.fail(C.exo_event_destroy(d.raw, e.raw), "cuEventDestroy")
}
