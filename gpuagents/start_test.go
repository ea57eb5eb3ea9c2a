package gpuagents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// quiet is a queue without swarms, whose session and wakes say when they are closed.
type quiet struct {
	noLogs
	fail   error // of OpenSession
	mu     sync.Mutex
	opened int
	ttl    time.Duration
	closed int
	nexts  int // calls of Next of the wakes
	watch  chan struct{}
	away   atomic.Bool // WatchSwarms fails once
	left   time.Time   // when it did
}

// WatchSwarms implements Queue.
func (q *quiet) WatchSwarms(ctx context.Context, _ func(swarms.Change)) error {
	if q.away.CompareAndSwap(true, false) {
		q.left = time.Now()
		return jobs.ErrUnavailable
	}
	q.watch <- struct{}{}
	<-ctx.Done()
	return nil
}

// OpenSession implements Queue.
func (q *quiet) OpenSession(_ context.Context, _ string, ttl time.Duration, _ *slog.Logger) (swarms.Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened++
	if ttl != q.ttl {
		q.fail = fmt.Errorf("leases of %v", ttl)
	}
	if q.fail != nil {
		return nil, q.fail
	}
	return &quietSession{of: q}, nil
}

// OpenWakes implements Queue.
func (q *quiet) OpenWakes() swarms.Wakes { return &quietWakes{of: q} }

type quietSession struct {
	swarms.Session
	of *quiet
}

func (*quietSession) Freed() <-chan struct{} { return nil }

func (*quietSession) Lost() <-chan struct{} { return nil }

// Close implements swarms.Session.
func (s *quietSession) Close(context.Context) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.closed++
	return nil
}

type quietWakes struct {
	swarms.Wakes
	of *quiet
}

// Next implements swarms.Wakes.
func (w *quietWakes) Next(ctx context.Context) (string, error) {
	w.of.mu.Lock()
	w.of.nexts++
	w.of.mu.Unlock()
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// Close implements swarms.Wakes.
func (w *quietWakes) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.closed += 100
}

// TestAgentStarts: an agent has the documented defaults, follows the swarms under a session, and
// ends with everything closed, with a session and without one.
func TestAgentStarts(t *testing.T) {
	t.Parallel()
	d := launches.Host(t)
	for _, fail := range []error{nil, errors.New("no server")} {
		q := &quiet{fail: fail, ttl: 10 * time.Second, watch: make(chan struct{}, 1)}
		a, err := Start(Options{Name: "a", Device: d, Queue: q, Logger: slog.New(slog.DiscardHandler)})
		testkit.NoError(t, "Start", err)
		if o := a.o; o.LeaseTTL != 10*time.Second || o.MaxShards != MaxShards || o.OpenShards != OpenShards ||
			o.ParkedMemory != ParkedMemory {
			t.Errorf("defaults %+v", o)
		}
		<-q.watch
		testkit.Until(t, "a session is asked for, and wakes", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.opened > 0 && q.nexts > 0
		})
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		a.freed <- struct{}{} // A shard has ended that had much memory.
		testkit.Until(t, "its memory is given back to the system", func() bool {
			runtime.ReadMemStats(&now)
			return now.NumForcedGC > before.NumForcedGC && len(a.freed) == 0
		})
		if a.Device() != d || len(a.Devices()) != 1 || a.Devices()[0] != d || len(a.Levels()) != 1 || a.Level() != 0 ||
			a.Health() != nil || a.Room() != nil || a.Full() || a.Shards() != 0 {
			t.Errorf("an agent without swarms: device %v, levels %v, %v", a.Device(), a.Levels(), a.Health())
		}
		select {
		case <-a.Closed():
			t.Error("it has ended")
		default:
		}
		if fail == nil {
			a.Stop()
		} else if err := a.Drain(t.Context()); err != nil {
			t.Errorf("a.Drain: %v, want no error", err)
		}
		<-a.Closed()
		if want := map[bool]int{true: 101, false: 100}[fail == nil]; q.closed != want {
			t.Errorf("closed are %d, want %d", q.closed, want)
		}
	}
	q := &quiet{ttl: time.Minute, watch: make(chan struct{}, 1)}
	set := Options{
		Name: "a", Device: d, Queue: q, Logger: slog.New(slog.DiscardHandler), LeaseTTL: time.Minute,
		MaxShards: 1, OpenShards: 1, ParkedMemory: 1, PageMemory: 1 << 20, HostPageMemory: 1 << 10,
	}
	a, err := Start(set)
	testkit.NoError(t, "Start", err)
	if o := a.o; o.LeaseTTL != time.Minute || o.MaxShards != 1 || o.OpenShards != 1 || o.ParkedMemory != 1 {
		t.Errorf("options %+v", o)
	}
	if r := a.Room(); r == nil || r.Shard != 1<<20+1<<10 || r.All != r.Shard {
		t.Errorf("room %+v", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Drain(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v, want no error or %v", err, context.Canceled)
	}
	a.Stop()
}

// TestAgentCounts: an agent says how many shards it serves and has parked, and is full at its
// number of leases and at its memory for parked shards.
func TestAgentCounts(t *testing.T) {
	a := &Agent{o: Options{MaxShards: 3, ParkedMemory: 100}, assignments: map[string]*assignment{}}
	for i, state := range []assignmentState{
		stateServed, stateServed, stateParked, stateWaiting, stateOver, stateParked,
		stateParked,
	} {
		a.assignments[fmt.Sprint(i)] = &assignment{state: state}
	}
	if a.Shards() != 5 || a.Parked() != 3 {
		t.Errorf("%d shards, %d of them parked", a.Shards(), a.Parked())
	}
	for _, c := range []struct {
		leases  int
		resting int64
		full    bool
	}{{0, 0, false}, {2, 99, false}, {3, 0, true}, {4, 0, true}, {0, 100, true}, {0, 101, true}, {3, 100, true}} {
		a.leases, a.parkedBytes = c.leases, c.resting
		if a.Full() != c.full {
			t.Errorf("%d leases and %d bytes: full %v", c.leases, c.resting, a.Full())
		}
	}
}

// TestAgentWatchesAgain: an agent that cannot watch the swarms tries again after a second. It has
// swept its checkpoints before.
func TestAgentWatchesAgain(t *testing.T) {
	t.Parallel()
	q := &quiet{ttl: 10 * time.Second, watch: make(chan struct{}, 1)}
	q.away.Store(true)
	a, err := Start(Options{Name: "a", Device: launches.Host(t), Queue: q, Logger: slog.New(slog.DiscardHandler)})
	testkit.NoError(t, "Start", err)
	<-q.watch
	if took := time.Since(q.left); took < time.Second {
		t.Errorf("it tried again after %v", took)
	}
	a.Stop()
}

// Peers implements swarms.Session.
func (*quietSession) Peers() []swarms.Peer { return nil }

// Offers implements swarms.Session.
func (*quietSession) Offers() []swarms.Offer { return nil }

// TestFreedIsSignalled: memory is given back to the system once for the shards that end together.
func TestFreedIsSignalled(t *testing.T) {
	f := make(freed, 1)
	f.signal()
	f.signal() // the first has not been seen yet
	if n := len(f); n != 1 {
		t.Errorf("%d signals", n)
	}
}

// TestStartRefuses: options with which an agent would fail later are errors that name what is
// missing.
func TestStartRefuses(t *testing.T) {
	whole := Options{Device: launches.Host(t), Queue: &quiet{}, Logger: slog.New(slog.DiscardHandler)}
	for want, change := range map[string]func(o *Options){
		"no device":              func(o *Options) { o.Device = nil },
		"no queue":               func(o *Options) { o.Queue = nil },
		"no logger":              func(o *Options) { o.Logger = nil },
		"no device in Others[0]": func(o *Options) { o.Others = make([]pool.Accelerator, 1) },
		"Others[0].PageMemory is -5": func(o *Options) {
			o.Others = []pool.Accelerator{{
				Device:     o.Device,
				PageMemory: -5,
			}}
		},
		"PageMemory is -1": func(o *Options) { o.PageMemory = -1 },
		"LeaseTTL is -1":   func(o *Options) { o.LeaseTTL = -1 },
	} {
		o := whole
		change(&o)
		a, err := Start(o)
		if a != nil || !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := Start(Options{})
	for _, want := range []string{"no device", "no queue", "no logger"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q too", err, want)
		}
	}
}
