package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// submitBatcher groups the jobs that callers of one connection submit concurrently. Jobs that come
// while others are in progress form a group. A group needs one request for earlier results instead
// of one per job, and is stored as one atomic batch if that is faster. A job that comes alone is
// sent at once. Each caller gets the answer of its own job, whatever happens to other jobs.
type submitBatcher struct {
	q    *Queue
	mode wire.PublishMode

	mu      sync.Mutex
	waiting []*submission
	busy    bool // a goroutine sends
}

// submission is one job in progress. Its caller waits until done has the answer, or until it gives
// up.
type submission struct {
	gone   func() bool                        // reports whether its caller has given up
	onGone func(fn func()) (stop func() bool) // calls fn when its caller gives up
	what   string
	job    jobs.Job
	source wire.Source
	m      *nats.Msg
	made   bool       // its id was made for this call, so nobody knows it
	done   chan error // has room for the one answer
}

// stream identifies the stream of the job.
func (s *submission) stream() wire.Source {
	return wire.Source{Pool: s.source.Pool, Level: s.source.Level}
}

// groupPeriod is the shortest time between the begins of two groups while callers wait. With 5,000
// jobs per second a group of 1 ms has 5 jobs, and the questions of a group cost as much as two
// jobs. A caller waits no longer than this, and only after others.
const groupPeriod = 1500 * time.Microsecond

// submit puts a job into the next group, and waits for its answer or for the end of ctx. In the
// second case the job may be stored or not. The caller of a job that comes alone sends it itself,
// because the start of another goroutine would delay it.
func (s *submitBatcher) submit(ctx context.Context, one *submission) error {
	one.gone = func() bool { return ctx.Err() != nil }
	one.onGone = func(fn func()) func() bool { return context.AfterFunc(ctx, fn) }
	one.done = make(chan error, 1)
	s.mu.Lock()
	if alone := !s.busy; alone { // its caller sends it: another goroutine would come first
		s.busy = true
		s.mu.Unlock()
		s.store(ctx, []*submission{one})
		s.mu.Lock()
		if s.busy = len(s.waiting) > 0; s.busy {
			go s.send() // ends with the last that waits; a closed connection answers all of them
		}
		s.mu.Unlock()
		return <-one.done
	}
	s.waiting = append(s.waiting, one)
	s.mu.Unlock()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", one.what, context.Cause(ctx))
	}
}

// send sends groups until no submission waits.
func (s *submitBatcher) send() {
	for {
		group := s.next()
		if len(group) == 0 {
			return
		}
		began := time.Now()
		ctx, done := groupContext(group)
		s.store(ctx, group)
		done()
		s.mu.Lock()
		more := len(s.waiting) > 0
		s.mu.Unlock()
		if more {
			time.Sleep(groupPeriod - time.Since(began))
		}
	}
}

// next returns the waiting submissions of one stream, in their order and each id once. It drops
// those whose callers have given up. If it returns none, the sender must end.
func (s *submitBatcher) next() (group []*submission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*submission
	ids := make(map[string]bool, len(s.waiting))
	for _, one := range s.waiting {
		switch {
		case one.gone():
		case len(group) == jobs.MaxBatch, len(group) > 0 && one.stream() != group[0].stream(), ids[one.job.ID]:
			kept = append(kept, one)
		default:
			group = append(group, one)
			ids[one.job.ID] = true
		}
	}
	s.waiting = kept
	s.busy = len(group) > 0
	return group
}

// store stores the jobs of a group, which have one stream, and answers their callers.
func (s *submitBatcher) store(ctx context.Context, group []*submission) {
	group = s.unknownOf(ctx, group)
	if len(group) == 0 {
		return
	}
	msgs := make([]*nats.Msg, len(group))
	for i, one := range group {
		natsconn.SetMessageID(one.m)
		msgs[i] = one.m
	}
	what := group[0].what
	if len(group) > 1 {
		what = fmt.Sprintf("submit %d jobs", len(group))
	}
	for i, err := range s.q.conn.PublishMany(ctx, s.q.conn.RetryUnlessFull, &s.mode, what, msgs) {
		group[i].done <- SubmitError(group[i].what, err)
	}
}

// groupContext returns a context that ends when all callers of a group have given up.
func groupContext(group []*submission) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(int64(len(group)))
	stops := make([]func() bool, len(group))
	for i, one := range group {
		stops[i] = one.onGone(func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// unknownOf answers the submissions whose job has a result or is delayed, and returns the remaining
// ones.
func (s *submitBatcher) unknownOf(ctx context.Context, group []*submission) []*submission {
	q := s.q
	var asked []jobs.Job
	at := make(map[string]int, len(group))
	errs := make([]error, len(group))
	for i, one := range group {
		if !one.made {
			asked = append(asked, one.job)
			at[one.job.ID] = i
		}
	}
	ask := func(j jobs.Job) error { errs[at[j.ID]] = q.unknown(ctx, j, group[at[j.ID]].source); return nil }
	if len(asked) == 1 {
		_ = ask(asked[0])
	} else if len(asked) < MinTogether || q.usesLevels(ctx, group[0].source.Pool) {
		_ = each(asked, ask)
	} else {
		delayed := make(chan bool, 1)
		go func() { delayed <- !s.noneDelayed(ctx, asked) }()
		over := !q.results.NoneAtOnce(ctx, asked)
		if <-delayed {
			_ = each(asked, ask)
		} else if over {
			_ = each(asked, func(j jobs.Job) error { errs[at[j.ID]] = q.fresh(ctx, j); return nil })
		}
	}
	var left []*submission
	for i, one := range group {
		if errs[i] != nil {
			one.done <- fmt.Errorf("%s: %w", one.what, errs[i])
			continue
		}
		left = append(left, one)
	}
	return left
}

// noneDelayed reports whether none of the sources of the jobs has a delayed job. It returns false
// when the server does not answer.
func (s *submitBatcher) noneDelayed(ctx context.Context, batch []jobs.Job) bool {
	asked := map[wire.Source]bool{}
	for _, j := range batch {
		src := wire.SourceOf(j)
		if asked[src] {
			continue
		}
		asked[src] = true
		_, err := s.q.conn.NextOnce(ctx, wire.SchedStream, "exo.*."+src.Tail()+".*", 1)
		if !errors.Is(err, jobs.ErrNotFound) {
			return false
		}
	}
	return true
}
