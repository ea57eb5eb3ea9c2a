package dashboard

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
)

// Times of event streams.
const (
	maxStreams = 100
	heartbeat  = 15 * time.Second
	patience   = 5 * time.Second // a browser that does not read for so long is dropped
)

// hub follows the cluster while at least one stream is open, and keeps the newest frame for all
// streams. A slow stream skips frames. It never delays another stream, because the hub sends
// nothing: each stream takes the newest frame when it is ready.
//
// The follower starts with the first stream and ends with the last one, so agents report telemetry
// every second only while somebody watches. mu guards the fields below it.
type hub struct {
	cluster Cluster
	faults  *doctor.Faults
	log     *slog.Logger
	every   time.Duration // at most one frame in this time
	beat    time.Duration // between signs of life of a stream
	within  time.Duration // a browser takes a frame in this time

	mu      sync.Mutex
	streams int
	frame   *frame
	changed chan struct{} // closed when frame is replaced
	cancel  context.CancelFunc
	ended   context.Context //nolint:containedctx // the hub outlives the requests
	end     context.CancelFunc
	running sync.WaitGroup // followers
}

func newHub(c Cluster, faults *doctor.Faults, log *slog.Logger, every time.Duration) *hub {
	h := &hub{
		cluster: c, faults: faults, log: log, every: every, beat: heartbeat, within: patience,
		changed: make(chan struct{}),
	}
	h.ended, h.end = context.WithCancel(context.Background())
	return h
}

// encode makes the frame of a state, with its faults.
func (h *hub) encode(state *cluster.State) (*frame, error) {
	return newFrame(state, h.faults.Of(&doctor.Facts{At: state.At, State: state, Error: state.Error}))
}

func (h *hub) close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.running.Wait()
}

// join counts a stream and starts the follower for the first one. It reports false when there are
// too many, or when the hub is closed. The caller calls leave after true.
func (h *hub) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= maxStreams || h.ended.Err() != nil {
		return false
	}
	h.streams++
	if h.streams == 1 {
		h.frame = nil // it may be old
		ctx, cancel := context.WithCancel(h.ended)
		h.cancel = cancel
		h.running.Add(1)
		go func() {
			defer h.running.Done()
			h.follow(ctx)
		}()
	}
	return true
}

// leave uncounts a stream, and ends the follower with the last one.
func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	if h.streams == 0 {
		h.cancel()
	}
}

// follow publishes the states of the cluster until ctx ends: the current state at once, so that a
// page has numbers without a wait, and then the newest state at the end of each interval.
func (h *hub) follow(ctx context.Context) {
	defer h.cluster.Watched()()
	state := h.cluster.State()
	for {
		if state.Frame == 0 { // before the first poll there is nothing to show
		} else if f, err := h.encode(state); err != nil {
			h.log.Error("dashboard: a state cannot be encoded", "err", err)
		} else {
			h.mu.Lock()
			h.frame = f
			close(h.changed)
			h.changed = make(chan struct{})
			h.mu.Unlock()
		}
		if !pause(ctx, h.every) {
			return
		}
		next, err := h.cluster.Wait(ctx, state.Frame)
		for err != nil {
			if ctx.Err() != nil {
				return
			}
			h.log.Warn("dashboard: no new state", "err", err)
			if !pause(ctx, h.every) {
				return
			}
			next, err = h.cluster.Wait(ctx, state.Frame)
		}
		state = next
	}
}

// newest returns the newest frame, or nil, and a channel that closes when there is a newer one.
func (h *hub) newest() (*frame, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frame, h.changed
}

// current returns the frame of the newest state, encoded once, whether or not a stream is open.
func (h *hub) current() (*frame, error) {
	state := h.cluster.State()
	h.mu.Lock()
	f := h.frame
	h.mu.Unlock()
	if f != nil && f.state == state {
		return f, nil
	}
	f, err := h.encode(state)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frame == nil || h.frame.state.Frame < state.Frame {
		h.frame = f
	}
	return f, nil
}

// stream sends frames to one browser until it leaves, stops reading, or loses its login.
//
// Each write has a deadline. A browser that does not read fills the buffers of its connection; the
// next write then blocks, fails at the deadline, and ends the stream. A browser that reconnects
// names the last frame that it has (Last-Event-ID), and is not sent that frame again.
func (s *Server) stream(w http.ResponseWriter, r *httpapi.Request) error {
	h := s.events
	if !h.join() {
		return &httpapi.Error{Status: http.StatusServiceUnavailable, After: 10 * time.Second, Text: errBusy.Error()}
	}
	defer h.leave()
	rc := http.NewResponseController(w)
	packed := acceptsGzip(r.Request)
	head := w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("Vary", "Accept-Encoding")
	head.Set("X-Accel-Buffering", "no") // of nginx
	if packed {
		head.Set("Content-Encoding", "gzip")
	}
	send := func(f *frame) error {
		event := f.event
		if packed {
			event = f.packed
		}
		if err := rc.SetWriteDeadline(time.Now().Add(h.within)); err != nil {
			return err
		}
		if _, err := w.Write(event); err != nil {
			return err
		}
		if err := rc.Flush(); err != nil {
			return err
		}
		return rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, written to or not
	}
	if send(opening) != nil {
		return nil
	}
	beat := time.NewTicker(h.beat)
	defer beat.Stop()
	var sent uint64
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		sent = last
	}
	first := true
	for {
		f, changed := h.newest()
		// A browser that comes back may name a frame of an earlier process: it gets the newest one.
		if f != nil && (first || f.state.Frame != sent) {
			if send(f) != nil {
				return nil
			}
			sent, first = f.state.Frame, false
		}
		select {
		case <-changed:
		case <-beat.C:
			if _, ok := s.user(r.Request); !ok || send(beating) != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		case <-h.ended.Done():
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
