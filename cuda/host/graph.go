package host

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// graph is a list of steps, and the memory that they use, which must be open when it is replayed.
type graph struct {
	dev    *Device
	steps  []step
	mem    []device.Sized
	err    error      // the first error of a call inside the capture; guarded by the stream's mu
	mu     sync.Mutex // held during a replay
	closed atomic.Bool
}

// Capture calls fn and records the work that fn puts into the stream, instead of queueing it. It
// fails if fn or a call inside fn fails. Other goroutines must not use the stream meanwhile.
func (s *stream) Capture(fn func() error) (device.Graph, error) {
	if err := s.health("capture"); err != nil {
		return nil, err
	}
	g := &graph{dev: s.dev}
	if err := s.record(g); err != nil {
		return nil, err
	}
	// The capture ends however fn ends.
	var err error
	func() {
		defer func() { // also when fn panics
			s.mu.Lock()
			s.recording = nil
			s.mu.Unlock()
		}()
		err = fn()
	}()
	if err := errors.Join(err, g.err); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	if s.dev.closed {
		return nil, fmt.Errorf("capture on host: %w", device.ErrClosed)
	}
	s.dev.handles[g] = "graph"
	return g, nil
}

// record starts a capture into g. Captures cannot be nested.
func (s *stream) record(g *graph) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("capture: stream: %w", device.ErrClosed)
	}
	if s.recording != nil {
		return s.refuse(fmt.Errorf("capture in a capture: %w", device.ErrInvalidArgument))
	}
	s.recording = g
	return nil
}

// Replay queues all steps of a graph as one operation. It returns when the steps are queued, and
// fails if the graph or a buffer of it is closed.
func (s *stream) Replay(dg device.Graph) error {
	g, ok := dg.(*graph)
	if !ok || g == nil || g.dev != s.dev {
		return s.note(fmt.Errorf("replay on host: a graph of another device: %w", device.ErrInvalidArgument))
	}
	if g.closed.Load() {
		return s.note(fmt.Errorf("replay: graph: %w", device.ErrClosed))
	}
	// The steps have the memory itself; what they use must still be open.
	for _, m := range g.mem {
		if _, err := g.dev.span(m, 0, 0, true); err != nil {
			return s.note(fmt.Errorf("replay: %w", err))
		}
	}
	s.mu.Lock()
	capturing := s.recording != nil
	s.mu.Unlock()
	if capturing {
		return s.note(fmt.Errorf("replay in a capture: %w", device.ErrInvalidArgument))
	}
	return s.put("replay", g.run)
}

// run makes the steps in order. Replays of one graph in several streams exclude each other, since
// the steps share memory.
func (g *graph) run() *failure {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, work := range g.steps {
		if f := work(); f != nil {
			return f
		}
	}
	return nil
}

// Len returns the number of steps.
func (g *graph) Len() int { return len(g.steps) }

// Close closes the graph. Replays that are queued still run.
func (g *graph) Close() error {
	if !g.closed.Swap(true) {
		g.dev.forget(g)
	}
	return nil
}
