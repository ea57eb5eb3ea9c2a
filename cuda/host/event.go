package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// event is the last mark that Record has put into a stream. A later Record replaces the mark; who
// waits for the former one goes on to wait for it.
type event struct {
	dev *Device

	mu     sync.Mutex
	closed bool
	at     *mark // nil: never recorded
}

// mark is one point in the work of a stream. The goroutine of the stream sets when and then closes
// reached, after the work before the mark.
type mark struct {
	reached chan struct{}
	when    time.Time
}

// NewEvent returns an event without a mark. The caller closes it.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.health("new event"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("new event on host: %w", device.ErrClosed)
	}
	e := &event{dev: d}
	d.handles[e] = "event"
	return e, nil
}

// last returns the mark of the latest Record, nil if there was none. op names the call in errors.
func (e *event) last(op string) (*mark, error) {
	if e == nil {
		return nil, fmt.Errorf("%s: no event: %w", op, device.ErrInvalidArgument)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("%s: event: %w", op, device.ErrClosed)
	}
	return e.at, nil
}

// Record queues a mark, which becomes the event's.
func (s *stream) Record(ev device.Event) error {
	e, ok := ev.(*event)
	if !ok || e == nil || e.dev != s.dev {
		return s.note(fmt.Errorf("record on host: an event of another device: %w", device.ErrInvalidArgument))
	}
	if err := s.health("record"); err != nil {
		return err
	}
	m := &mark{reached: make(chan struct{})}
	// The lock is held until the mark is queued, so that marks of several Records of one event are
	// in the order of their replacement.
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return s.note(fmt.Errorf("record: event: %w", device.ErrClosed))
	}
	err := s.queueOp(context.Background(), "record", operation{mark: func() {
		m.when = time.Now()
		close(m.reached)
	}})
	if err == nil {
		e.at = m
	}
	return err
}

// Wait queues a wait for the event's present mark. That mark was queued before, so waits cannot
// form a circle.
func (s *stream) Wait(ev device.Event) error {
	e, ok := ev.(*event)
	if !ok {
		return s.note(fmt.Errorf("wait on host: an event of another kind of device: %w", device.ErrInvalidArgument))
	}
	m, err := e.last("wait")
	if err != nil {
		return s.note(err)
	}
	if err := s.health("wait"); err != nil {
		return err
	}
	return s.queueOp(context.Background(), "wait", operation{step: func() *failure {
		if m != nil {
			<-m.reached
		}
		return nil
	}})
}

// Done reports whether the stream has passed the mark; an event without a mark is done.
func (e *event) Done() (bool, error) {
	m, err := e.last("query an event")
	if err != nil {
		return false, err
	}
	if err := e.dev.health("query an event"); err != nil {
		return false, err
	}
	if m == nil { // never recorded
		return true, nil
	}
	select {
	case <-m.reached:
		return true, e.dev.health("query an event")
	default:
		return false, nil
	}
}

// Sync waits until the stream has passed the mark, or for the end of ctx.
func (e *event) Sync(ctx context.Context) error {
	m, err := e.last("sync an event")
	if err != nil {
		return err
	}
	if m != nil {
		select {
		case <-m.reached:
		case <-ctx.Done():
			return fmt.Errorf("sync an event on host: %w", ctx.Err())
		}
	}
	return e.dev.health("sync an event")
}

// Since returns the time between the marks of two events, which must both be done.
func (e *event) Since(earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from == nil || from.dev != e.dev {
		return 0, fmt.Errorf("time between events: of another device: %w", device.ErrInvalidArgument)
	}
	var times [2]time.Time
	for i, ev := range []*event{from, e} {
		m, err := ev.last("time between events")
		if err != nil {
			return 0, err
		}
		if m == nil {
			return 0, fmt.Errorf("time between events: one was never recorded: %w", device.ErrInvalidArgument)
		}
		select {
		case <-m.reached: // when was written before reached was closed
			times[i] = m.when
		default:
			return 0, fmt.Errorf("time between events: one is not done: %w", device.ErrTransient)
		}
	}
	return times[1].Sub(times[0]), nil
}

// Close closes the event. Streams that wait for its mark continue to wait.
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.dev.forget(e)
	return nil
}
