package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Options configure a Watcher.
type Options struct {
	// Conn stays the caller's, who closes it after the Watcher. The login of a viewer is enough.
	Conn *natsq.Conn
	// Every is the poll interval; 0: a second.
	Every time.Duration
	Log   *slog.Logger
}

// Watcher polls a cluster at regular intervals, from one goroutine, however many readers there are.
// Its methods may be called from several goroutines.
type Watcher struct {
	conn  *natsq.Conn
	every time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	state   *State
	next    chan struct{} // closed when state changes
	viewers int
	history *history

	stop  context.CancelFunc
	ended sync.WaitGroup
}

const (
	// pollTimeout bounds one poll. A slower cluster is shown as not reachable.
	pollTimeout = 5 * time.Second
	// idlePollRatio is the number of polls per question to agents while nobody watches.
	idlePollRatio = 10
)

// Start starts a watcher. Its first poll is in progress when Start returns. The caller closes it.
func Start(o Options) *Watcher {
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &Watcher{
		conn: o.Conn, every: o.Every, log: o.Log, state: &State{}, next: make(chan struct{}), history: newHistory(),
		stop: stop,
	}
	w.ended.Go(func() { w.run(ctx) })
	return w
}

// Close ends the polls. A second call does nothing. Calls of Wait that are in progress end with
// their own context only.
func (w *Watcher) Close() {
	w.stop()
	w.ended.Wait()
}

// State returns the newest state, which must not be changed. Frame is 0 before the first poll.
func (w *Watcher) State() *State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Wait blocks until there is a state with a frame later than after, and returns the newest. The
// caller passes the Frame that it has shown last; frames between may be skipped. The error is the
// cause of the end of ctx.
func (w *Watcher) Wait(ctx context.Context, after uint64) (*State, error) {
	for {
		w.mu.Lock()
		s, next := w.state, w.next
		w.mu.Unlock()
		if s.Frame > after {
			return s, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Watched has agents asked for their metrics at each poll until done is called. Otherwise they are
// asked at every idlePollRatio-th poll. done may be called several times.
func (w *Watcher) Watched() (done func()) {
	w.mu.Lock()
	w.viewers++
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		w.viewers--
		w.mu.Unlock()
	})
}

// Viewers returns how many watch, as Watched counts them.
func (w *Watcher) Viewers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.viewers
}

// History returns the named series since a time: by second within the last 15 minutes, by minute
// within the last 24 hours, from the finer ring that reaches as far back.
func (w *Watcher) History(names []string, from time.Time) History {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.since(names, from)
}

// run polls until ctx ends. A failed poll publishes the last State again with the error, and
// without numbers, which leaves a gap in the history. It logs the first failure and the recovery,
// not each failure.
func (w *Watcher) run(ctx context.Context) {
	l := NewPoller(w.conn)
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	failed := false
	for n := 0; ; n++ {
		w.mu.Lock()
		watched, before := w.viewers > 0, w.state
		w.mu.Unlock()
		try, cancel := context.WithTimeout(ctx, pollTimeout)
		s, err := l.Poll(try, watched || n%idlePollRatio == 0)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !failed {
				w.log.Warn("the cluster cannot be observed", "error", err)
			}
			old := *before
			s = &old
			s.Error, s.Numbers = err.Error(), nil
			if before.Error == "" {
				s.Since = before.At
			}
		} else if failed {
			w.log.Info("the cluster can be observed again")
		}
		failed = err != nil
		s.Frame, s.At = before.Frame+1, time.Now().UTC()
		w.publish(s)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publish makes a state the newest and wakes every Wait. The state must not be changed from here
// on.
func (w *Watcher) publish(s *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
	w.history.add(s.At, s.Numbers)
	close(w.next)
	w.next = make(chan struct{})
}
