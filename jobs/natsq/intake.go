package natsq

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

// intake are the jobs that callers of one connection are handing in. Those that come while others are under way go together: one
// question for earlier results instead of one a job, and one atomic batch where that is faster. A job that comes alone goes at once. A
// caller gets the answer of its own job, whatever becomes of the others.
type intake struct {
	c *Conn

	mu      sync.Mutex
	waiting []*arrival
	busy    bool // a goroutine sends
}

// arrival is one job on its way.
type arrival struct {
	ctx  context.Context // of its caller
	what string
	job  jobs.Job
	m    *nats.Msg
	made bool       // its id was made for this call, so nobody knows it
	done chan error // has room for the one answer
}

// pace is how soon after one group the next may begin while callers wait. With 5,000 jobs a second a group of 1 ms is 5 jobs, and what is
// asked a group costs as much as two jobs do; a caller waits that long at most and only behind others.
const pace = 1500 * time.Microsecond

// hand puts a job into the next group and waits for its answer, or for ctx: then the job may be stored or not.
func (s *intake) hand(ctx context.Context, one *arrival) error {
	one.ctx, one.done = ctx, make(chan error, 1)
	s.mu.Lock()
	if alone := !s.busy; alone { // its caller sends it: another goroutine would come first
		s.busy = true
		s.mu.Unlock()
		s.c.submitGroup([]*arrival{one})
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

// send sends groups until nobody waits.
func (s *intake) send() {
	for {
		group := s.next()
		if len(group) == 0 {
			return
		}
		began := time.Now()
		s.c.submitGroup(group)
		s.mu.Lock()
		more := len(s.waiting) > 0
		s.mu.Unlock()
		if more {
			time.Sleep(pace - time.Since(began))
		}
	}
}

// next takes those that wait, of one pool and in their order; none when there are none, and then the sender has ended.
func (s *intake) next() (group []*arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*arrival
	ids := make(map[string]bool, len(s.waiting))
	for _, one := range s.waiting {
		switch {
		case one.ctx.Err() != nil: // its caller has gone
		case len(group) == jobs.MaxBatch, len(group) > 0 && one.job.Pool != group[0].job.Pool, ids[one.job.ID]:
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

// submitGroup stores jobs of one pool and answers their callers.
func (c *Conn) submitGroup(group []*arrival) {
	ctx, done := groupContext(group)
	defer done()
	group = c.unknownOf(ctx, group)
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
	for i, err := range c.PublishMany(ctx, c.RetryUnlessFull, &c.jobsMode, what, msgs) {
		group[i].done <- submitError(group[i].what, err)
	}
}

// groupContext is the context of a single submission, or one that ends with the last of those of several.
func groupContext(group []*arrival) (context.Context, func()) {
	if len(group) == 1 {
		return group[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(int64(len(group)))
	stops := make([]func() bool, len(group))
	for i, one := range group {
		stops[i] = context.AfterFunc(one.ctx, func() {
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

// unknownOf answers those whose job is over or delayed, and returns the others.
func (c *Conn) unknownOf(ctx context.Context, group []*arrival) []*arrival {
	var asked []jobs.Job
	at := make(map[string]int, len(group))
	errs := make([]error, len(group))
	for i, one := range group {
		if !one.made {
			asked = append(asked, one.job)
			at[one.job.ID] = i
		}
	}
	ask := func(j jobs.Job) error { errs[at[j.ID]] = c.unknown(ctx, j); return nil }
	if len(asked) == 1 {
		_ = ask(asked[0])
	} else if len(asked) < worthAsking {
		_ = each(asked, ask)
	} else {
		delayed := make(chan bool, 1)
		go func() { delayed <- !c.noneDelayed(ctx, asked) }()
		over := !c.noneAtOnce(ctx, asked)
		if <-delayed {
			_ = each(asked, ask)
		} else if over {
			_ = each(asked, func(j jobs.Job) error { errs[at[j.ID]] = c.fresh(ctx, j); return nil })
		}
	}
	var left []*arrival
	for i, one := range group {
		if errs[i] != nil {
			one.done <- fmt.Errorf("%s: %w", one.what, errs[i])
			continue
		}
		left = append(left, one)
	}
	return left
}

// noneDelayed is true when it is sure that none of the sources of the jobs has a delayed job.
func (c *Conn) noneDelayed(ctx context.Context, batch []jobs.Job) bool {
	asked := map[wire.Source]bool{}
	for _, j := range batch {
		s := wire.SourceOf(j)
		if asked[s] {
			continue
		}
		asked[s] = true
		if _, err := c.NextOnce(ctx, wire.SchedStream, "exo.*."+s.Tail()+".*", 1); !errors.Is(err, jobs.ErrNotFound) {
			return false
		}
	}
	return true
}
