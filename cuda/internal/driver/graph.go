//go:build cuda

package driver

/*
#cgo nocallback exo_graph_launch
#include "supplement.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// recording is a capture in progress. The stream's lock guards it.
type recording struct {
	ops  int
	used map[*atomic.Bool]struct{} // the closed flags of the memory that the work uses
	work block                     // the workspace of its matrix products
	err  error                     // the first error of a call inside the capture
}

// note remembers an error and returns it.
func (r *recording) note(err error) error {
	if r.err == nil {
		r.err = err
	}
	return err
}

// launch notes the memory of a launch.
func (r *recording) launch(args []device.Arg) {
	r.ops++
	for i := range args {
		switch m := args[i].Memory().(type) {
		case *buffer:
			r.used[&m.closed] = struct{}{}
		case *hostBuffer:
			r.used[&m.closed] = struct{}{}
		}
	}
}

// use notes the memory of one copy or fill. s.mu is held.
func (s *stream) use(closed ...*atomic.Bool) {
	if s.recording == nil {
		return
	}
	s.recording.ops++
	for _, c := range closed {
		s.recording.used[c] = struct{}{}
	}
}

// note uses the recording, if there is one.
func (s *stream) note(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording != nil && err != nil {
		return s.recording.note(err)
	}
	return err
}

// graph is an instantiated CUDA graph.
type graph struct {
	dev    *Device
	exec   C.CUgraphExec
	ops    int
	used   []*atomic.Bool
	work   block
	closed atomic.Bool
}

// Capture records what fn puts into the stream.
func (s *stream) Capture(fn func() error) (device.Graph, error) {
	if err := s.startCapture(); err != nil {
		return nil, err
	}
	var err error
	var g *graph
	func() {
		whole := false
		defer func() { // also when fn panics: the stream is then one again, and the graph is thrown away
			var end error
			g, end = s.endCapture(whole && err == nil)
			err = errors.Join(err, end)
		}()
		err = fn()
		whole = true
	}()
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return g, nil
}

func (s *stream) startCapture() error {
	if err := s.beginPlain("capture"); err != nil {
		return err
	}
	defer s.end()
	if r := C.exo_capture_begin(s.dev.raw, s.raw); r != C.CUDA_SUCCESS {
		return s.tell(s.dev.fail(r, "cuStreamBeginCapture"))
	}
	s.recording = &recording{used: map[*atomic.Bool]struct{}{}}
	return nil
}

// endCapture ends the capture and makes its graph, unless it is not wanted.
func (s *stream) endCapture(wanted bool) (*graph, error) {
	d := s.dev
	d.life.RLock()
	defer d.life.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.recording
	s.recording = nil
	kept := false
	defer func() {
		if rec.work.size > 0 && !kept {
			d.pool.give(rec.work)
		}
	}()
	if d.closed {
		return nil, fmt.Errorf("%s: %w", d.props.Name, device.ErrClosed)
	}
	if p := d.broken.Load(); p != nil {
		s.told = true
		return nil, *p
	}
	g := &graph{dev: d, ops: rec.ops}
	r := C.exo_capture_end(d.raw, s.raw, &g.exec)
	if rec.err != nil { // the driver has only an echo of it
		if g.exec != nil {
			_ = C.exo_graph_destroy(d.raw, g.exec)
		}
		return nil, rec.err
	}
	if r != C.CUDA_SUCCESS {
		return nil, d.fail(r, "capture of %d operations", g.ops)
	}
	if !wanted {
		return nil, d.fail(C.exo_graph_destroy(d.raw, g.exec), "cuGraphExecDestroy")
	}
	g.work, kept = rec.work, true
	for c := range rec.used {
		g.used = append(g.used, c)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[g] = "graph"
	return g, nil
}

// Replay launches the graph.
func (s *stream) Replay(dg device.Graph) error {
	g, ok := dg.(*graph)
	if !ok || g == nil || g.dev != s.dev {
		return s.note(fmt.Errorf("replay on %s: a graph of another device: %w", s.dev.props.Name,
			device.ErrInvalidArgument))
	}
	if g.closed.Load() {
		return s.note(fmt.Errorf("replay: graph: %w", device.ErrClosed))
	}
	for _, closed := range g.used {
		if closed.Load() {
			return s.note(fmt.Errorf("replay: a buffer of the graph: %w", device.ErrClosed))
		}
	}
	if err := s.beginPlain("replay"); err != nil {
		return err
	}
	defer s.end()
	if r := C.exo_graph_launch(s.dev.raw, g.exec, s.raw); r != C.CUDA_SUCCESS {
		return s.tell(s.dev.fail(r, "replay of %d operations", g.ops))
	}
	return nil
}

// Len is the number of operations.
func (g *graph) Len() int { return g.ops }

// Close destroys the graph.
func (g *graph) Close() error {
	d := g.dev
	d.life.RLock()
	defer d.life.RUnlock()
	if g.closed.Swap(true) {
		return nil
	}
	d.forget(g)
	if g.work.size > 0 {
		d.pool.give(g.work)
	}
	if d.broken.Load() != nil {
		return nil
	}
	return d.fail(C.exo_graph_destroy(d.raw, g.exec), "cuGraphExecDestroy")
}
