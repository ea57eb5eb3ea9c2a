package gpuagents

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/broadcast"
)

// openings are the shards that are open. Their number is bounded where some of them have nothing to do: those are parked for others, the one that
// has been idle for the longest first. Where all have something to do there are more.
type openings struct {
	most int

	mu   sync.Mutex
	all  map[*opened]struct{}
	left *broadcast.Broadcast // rung when one is left
}

// opened is a shard that is open. Its methods are called by the loop of the shard, park is closed by openings.
type opened struct {
	park chan struct{} // has a token when the shard is to be parked

	mu    sync.Mutex
	since time.Time   // when it had nothing to do any more; zero: it has
	asked time.Time   // when it was last asked to park
	fixed atomic.Bool // it is too large to be parked
	again bool        // it was open before

	replay atomic.Pointer[replay] // nil: it is not replayed
	follow *follow                // nil: the agent has the lease; of the loop
}

// leastIdle is how long a shard has had nothing to do before it is parked for another, and openPatience how long that one waits before it is
// opened beside the others.
const (
	leastIdle    = 100 * time.Millisecond
	openPatience = time.Second
)

func newOpenings(most int) *openings {
	return &openings{most: most, all: map[*opened]struct{}{}, left: broadcast.New()}
}

// idle and busy say whether the shard has something to do.
func (s *opened) idle() { s.set(time.Now()) }

func (s *opened) busy() { s.set(time.Time{}) }

func (s *opened) set(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// full reports whether as many shards are open as are kept open.
func (o *openings) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= o.most
}

// take waits until a shard may be opened, or for openPatience.
func (o *openings) take(ctx context.Context) *opened {
	s := &opened{park: make(chan struct{}, 1), since: time.Now()}
	t := time.NewTimer(openPatience)
	defer t.Stop()
	look := time.NewTicker(leastIdle)
	defer look.Stop()
	for late := false; ; {
		o.mu.Lock()
		left := o.left.Next()
		if len(o.all) < o.most || late || ctx.Err() != nil {
			o.all[s] = struct{}{}
			o.mu.Unlock()
			return s
		}
		o.ask()
		o.mu.Unlock()
		select {
		case <-left:
		case <-look.C:
		case <-t.C:
			late = true
		case <-ctx.Done():
		}
	}
}

// ask has the shard parked that has been idle for the longest. o.mu is held.
func (o *openings) ask() {
	var found *opened
	oldest, now := time.Now().Add(-leastIdle), time.Now()
	for s := range o.all {
		s.mu.Lock()
		if !s.since.IsZero() && s.since.Before(oldest) && now.Sub(s.asked) > openPatience && !s.fixed.Load() {
			found, oldest = s, s.since
		}
		s.mu.Unlock()
	}
	if found == nil {
		return
	}
	found.mu.Lock()
	found.asked = now
	found.mu.Unlock()
	select {
	case found.park <- struct{}{}:
	default:
	}
}

// trim has shards parked that are more than are kept open.
func (o *openings) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range len(o.all) - o.most {
		o.ask()
	}
}

// leave says that a shard is not open any more.
func (o *openings) leave(s *opened) {
	o.mu.Lock()
	delete(o.all, s)
	o.mu.Unlock()
	o.left.Send()
}

// level is that of lines of the log about a shard that is opened: of thousands that are parked and woken the log says nothing.
func (s *opened) level() slog.Level {
	if s.again {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
