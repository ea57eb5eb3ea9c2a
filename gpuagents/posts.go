package gpuagents

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
)

// post is a shard that the agent serves or waits for. A post that waits or is parked has no goroutine. Agent.mu guards what may change.
type post struct {
	id      shard.ID
	of      *serving
	log     *slog.Logger
	state   postState
	lease   jobs.Lease              // nil: not held
	rest    *shard.Rest             // what it has left in memory; nil: nothing
	cancel  context.CancelCauseFunc // of what serves it; nil: nothing does
	paced   bool                    // it has waited for its turn
	served  bool                    // it was served before
	seat    *shard.OpenShard        // of what serves it
	follows bool                    // another agent has the lease and has offered it
	took    time.Time               // when it was taken over from another agent
	parted  time.Time               // when it was stopped for another agent
	missing time.Duration           // how long it waits for a log that is not there; 0: it was there
}

// postState is what happens to a post next.
type postState int

const (
	postQueued  postState = iota // a starter takes it
	postWaiting                  // another agent has its lease, or this one has as many as it takes
	postServed                   // a goroutine works on it
	postParked                   // an entry in its log wakes it
	postOver                     // nothing follows in its log
	postEnded                    // its swarm or the agent has ended
)

// starters is how many shards are claimed, looked at and opened at a time. A claim is a synced write of some milliseconds, most of which
// is waiting.
const starters = 16

// key is what the lease of a post is called, and its watch.
func (p *post) key() string { return jobs.LeaseKey(p.id.Swarm, p.id.Shard) }

// enqueue hands a post to the starters. a.mu is held.
func (a *Agent) enqueue(p *post) {
	p.state = postQueued
	a.queue = append(a.queue, p)
	a.queued.Signal()
}

// wait has a post try again when attend says so. a.mu is held.
func (a *Agent) wait(p *post) {
	if p.state = postWaiting; p.of.gone {
		a.enqueue(p)
	}
}

// enqueueAfter is enqueue in a while. a.mu is held.
func (a *Agent) enqueueAfter(p *post, d time.Duration) {
	p.state = postWaiting
	time.AfterFunc(d, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.state == postWaiting {
			a.enqueue(p)
		}
	})
}

// start takes posts from the queue until ctx ends.
func (a *Agent) start(ctx context.Context) {
	for {
		a.mu.Lock()
		for len(a.queue) == 0 && ctx.Err() == nil {
			a.queued.Wait()
		}
		if ctx.Err() != nil {
			a.mu.Unlock()
			return
		}
		p := a.queue[0]
		a.queue = a.queue[1:]
		gone := p.of.gone
		a.mu.Unlock()
		if gone {
			a.leave(ctx, p)
			continue
		}
		a.begin(ctx, p)
	}
}

// forget drops what a post has left in memory. a.mu is held.
func (a *Agent) forget(p *post) {
	if p.rest != nil {
		a.resting -= p.rest.Bytes()
	}
	p.rest = nil
}

// begin takes the lease of a post that has none, and then serves or parks it.
func (a *Agent) begin(ctx context.Context, p *post) {
	a.mu.Lock()
	s, tries, held := a.session, a.tries, p.lease != nil
	switch {
	case !a.fleet.Accepts(), s == nil: // attend has it try again
		a.wait(p)
		a.mu.Unlock()
		if s != nil {
			a.decline(ctx, s, p)
		}
		return
	case held:
	case a.leases >= a.o.MaxShards || a.resting >= a.o.ParkedMemory:
		a.wait(p)
		a.refuse()
		a.mu.Unlock()
		a.decline(ctx, s, p)
		return
	case len(p.of.posts) > 1 && !p.paced:
		now := time.Now()
		wait := max(0, p.of.next.Sub(now))
		p.of.next, p.paced = now.Add(wait+leasePace), true
		if wait > 0 {
			a.enqueueAfter(p, wait)
			a.mu.Unlock()
			return
		}
	}
	if p.paced = false; !held {
		a.leases++
	}
	a.mu.Unlock()
	if !held {
		l, err := s.Acquire(ctx, p.key())
		follows := false
		if errors.Is(err, jobs.ErrHeld) {
			_, follows = offered(s, p.key(), false)
		}
		a.mu.Lock()
		switch {
		case err == nil:
			p.lease = l
		case follows:
			p.follows, err = true, nil
		case errors.Is(err, jobs.ErrHeld) && tries == a.tries, errors.Is(err, jobs.ErrFenced): // attend has it try again
			a.wait(p)
		case errors.Is(err, jobs.ErrHeld):
			a.enqueue(p)
		default:
			if ctx.Err() == nil {
				p.log.Warn("lease not acquired, trying again", "error", err)
			}
			a.enqueueAfter(p, a.o.LeaseTTL/10)
		}
		if err != nil {
			a.leases--
		}
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
	if p.follows {
		a.mu.Lock()
		a.forget(p) // what it has left is older than its checkpoint or its log
		a.mu.Unlock()
	} else if rest := a.answered(ctx, p); rest != nil {
		a.park(ctx, p, rest)
		return
	}
	seat := a.open.Open(ctx)
	if p.served {
		seat.Reopen()
	}
	if p.follows {
		seat.Follow()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.of.gone || ctx.Err() != nil {
		a.open.Close(seat)
		a.unfollow(p)
		a.enqueue(p)
		return
	}
	work, cancel := context.WithCancelCause(ctx)
	p.state, p.cancel, p.seat = postServed, cancel, seat
	from := p.rest
	a.forget(p)
	a.running.Go(func() {
		defer cancel(nil)
		a.serve(work, p, from, seat)
	})
}
