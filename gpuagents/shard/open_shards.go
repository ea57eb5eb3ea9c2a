package shard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
)

// OpenShards is the shards that are open. Their number is bounded while some are idle: those are
// parked in favour of others, the one that is idle the longest first. There are more open shards if
// none is idle. Its methods may be called from several goroutines.
type OpenShards struct {
	limit int

	mu     sync.Mutex
	all    map[*OpenShard]struct{}
	closed *pages.Broadcast // sent when a shard is closed
}

// OpenShard is a shard that is open. The loop of the shard calls its unexported methods.
type OpenShard struct {
	park chan struct{} // has a token when the shard is to be parked

	mu    sync.Mutex
	since time.Time   // when it became idle; zero: it is busy
	asked time.Time   // when it was last asked to park
	fixed atomic.Bool // it cannot be parked
	again bool        // it was open before

	replay atomic.Pointer[replay]   // nil: it is not being replayed
	team   atomic.Pointer[[]string] // names of the devices that make ticks; nil: one does

	visits chan visit    // what the loop does between two batches
	left   chan struct{} // closed when the shard is closed
	views  views
	follow *Follow // nil: the agent has the lease; used by the loop
}

// minIdle is the minimum idle time of a shard that is parked in favour of another. openPatience is
// how long the other shard waits before it is opened beyond the bound.
const (
	minIdle      = 100 * time.Millisecond
	openPatience = time.Second
)

// NewOpenShards returns a bound of most open shards.
func NewOpenShards(most int) *OpenShards {
	return &OpenShards{limit: most, all: map[*OpenShard]struct{}{}, closed: pages.NewBroadcast()}
}

func (s *OpenShard) idle() { s.set(time.Now()) }

func (s *OpenShard) busy() { s.set(time.Time{}) }

func (s *OpenShard) set(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// Full reports whether as many shards are open as the bound allows.
func (o *OpenShards) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) >= o.limit
}

// Open waits until a shard may be opened, for openPatience at most. The caller closes the shard
// with Close.
func (o *OpenShards) Open(ctx context.Context) *OpenShard {
	s := &OpenShard{
		park: make(chan struct{}, 1), since: time.Now(), visits: make(chan visit), left: make(chan struct{}),
		views: newViews(),
	}
	added := func(late bool) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.all) < o.limit || late {
			o.all[s] = struct{}{}
			return true
		}
		o.askOldest()
		return false
	}
	if err := o.closed.Await(ctx, openPatience, minIdle, added); err != nil {
		added(true) // the caller closes it at once
	}
	return s
}

// askOldest asks the shard to park that is idle the longest. o.mu is held.
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

// Trim asks shards above the bound to park.
func (o *OpenShards) Trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range len(o.all) - o.limit {
		o.askOldest()
	}
}

// Close removes a shard, and wakes the shards that wait to be opened.
func (o *OpenShards) Close(s *OpenShard) {
	o.mu.Lock()
	if _, open := o.all[s]; open {
		close(s.left)
	}
	delete(o.all, s)
	o.mu.Unlock()
	o.closed.Send()
}

// level returns the level of log lines about the opening of a shard. Shards that are parked and
// woken by the thousand log at debug level.
func (s *OpenShard) level() slog.Level {
	if s.again {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Reopen notes that the shard was open before, so that the log mentions it at the level debug only.
func (s *OpenShard) Reopen() { s.again = true }

// Follow has the shard follow another agent: it applies answered entries only, until Promote is
// called, and is not parked. It is called before the shard is served.
func (s *OpenShard) Follow() {
	s.follow = newFollow()
	s.fixed.Store(true)
}

// Followed returns what Follow has set; nil: the agent has the lease. It is called before the shard
// is served.
func (s *OpenShard) Followed() *Follow { return s.follow }

// Team returns the names of the devices that make the ticks of the shard; the first device has its
// pages. false: one device makes them, or the shard is not served.
func (s *OpenShard) Team(key string) (jobs.Team, bool) {
	names := s.team.Load()
	if names == nil || len(*names) == 0 {
		return jobs.Team{}, false
	}
	return jobs.Team{Shard: key, Devices: *names}, true
}

// Recovery returns the progress of the replay of the shard; false: it is not replayed.
func (s *OpenShard) Recovery(key string) (jobs.Recovery, bool) {
	r := s.replay.Load()
	if r == nil {
		return jobs.Recovery{}, false
	}
	return r.recovery(key), true
}
