package shard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/broadcast"
	"github.com/exoswarm/exoswarm/jobs"
)

// openings are the shards that are open. Their number is bounded where some of them have nothing to do: those are parked for others, the one that
// has been idle for the longest first. Where all have something to do there are more.
type OpenShards struct {
	limit int

	mu     sync.Mutex
	all    map[*OpenShard]struct{}
	closed *broadcast.Broadcast // rung when one is left
}

// opened is a shard that is open. Its methods are called by the loop of the shard, park is closed by openings.
type OpenShard struct {
	park chan struct{} // has a token when the shard is to be parked

	mu    sync.Mutex
	since time.Time   // when it had nothing to do any more; zero: it has
	asked time.Time   // when it was last asked to park
	fixed atomic.Bool // it is too large to be parked
	again bool        // it was open before

	replay atomic.Pointer[replay] // nil: it is not replayed
	follow *Follow                // nil: the agent has the lease; of the loop
}

// leastIdle is how long a shard has had nothing to do before it is parked for another, and openPatience how long that one waits before it is
// opened beside the others.
const (
	minIdle      = 100 * time.Millisecond
	openPatience = time.Second
)

func NewOpenShards(most int) *OpenShards {
	return &OpenShards{limit: most, all: map[*OpenShard]struct{}{}, closed: broadcast.New()}
}

// idle and busy say whether the shard has something to do.
func (s *OpenShard) idle() { s.set(time.Now()) }

func (s *OpenShard) busy() { s.set(time.Time{}) }

func (s *OpenShard) set(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// full reports whether as many shards are open as are kept open.
func (o *OpenShards) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= o.limit
}

// take waits until a shard may be opened, or for openPatience.
func (o *OpenShards) Open(ctx context.Context) *OpenShard {
	s := &OpenShard{park: make(chan struct{}, 1), since: time.Now()}
	t := time.NewTimer(openPatience)
	defer t.Stop()
	look := time.NewTicker(minIdle)
	defer look.Stop()
	for late := false; ; {
		o.mu.Lock()
		left := o.closed.Next()
		if len(o.all) < o.limit || late || ctx.Err() != nil {
			o.all[s] = struct{}{}
			o.mu.Unlock()
			return s
		}
		o.askOldest()
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
func (o *OpenShards) askOldest() {
	var found *OpenShard
	oldest, now := time.Now().Add(-minIdle), time.Now()
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
func (o *OpenShards) Trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range len(o.all) - o.limit {
		o.askOldest()
	}
}

// leave says that a shard is not open any more.
func (o *OpenShards) Close(s *OpenShard) {
	o.mu.Lock()
	delete(o.all, s)
	o.mu.Unlock()
	o.closed.Send()
}

// level is that of lines of the log about a shard that is opened: of thousands that are parked and woken the log says nothing.
func (s *OpenShard) level() slog.Level {
	if s.again {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Reopen says that the shard was open before, so that the log tells of it for those who search only.
func (s *OpenShard) Reopen() { s.again = true }

// Follow has the shard follow another agent: it applies answered entries only, until Promote is called, and
// is not parked. It is called before the shard is served.
func (s *OpenShard) Follow() {
	s.follow = newFollow()
	s.fixed.Store(true)
}

// Followed returns what Follow has set; nil: the agent has the lease. It is called before the shard is
// served.
func (s *OpenShard) Followed() *Follow { return s.follow }

// Recovery returns how far the replay of the shard is; false: it is not replayed.
func (s *OpenShard) Recovery(key string) (jobs.Recovery, bool) {
	r := s.replay.Load()
	if r == nil {
		return jobs.Recovery{}, false
	}
	return r.recovery(key), true
}
