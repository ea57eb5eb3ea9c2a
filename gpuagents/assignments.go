package gpuagents

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// assignment is a shard that the agent serves or wants to serve. An assignment that waits or is
// parked has no goroutine. Agent.mu guards the fields that change.
type assignment struct {
	id         shard.ID
	of         *servedSwarm
	log        *slog.Logger
	state      assignmentState
	lease      swarms.Lease            // nil: not held
	rest       *shard.Rest             // what a parked shard has left in memory; nil: nothing
	cancel     context.CancelCauseFunc // ends the goroutine that serves it; nil: there is none
	paced      bool                    // it has waited for leasePace
	served     bool                    // it was served before
	open       *shard.OpenShard        // opened by the goroutine that serves it
	follows    bool                    // another agent has the lease and has offered it
	takenOver  time.Time               // when it was taken over from another agent
	stopped    time.Time               // when it was stopped for a hand-over
	logMissing time.Duration           // how long it waits for a log that does not exist; 0: the log exists
}

// assignmentState is the next step of an assignment.
type assignmentState int

const (
	stateQueued  assignmentState = iota // a starter takes it
	stateWaiting                        // another agent has its lease, or this agent has its maximum
	stateServed                         // a goroutine works on it
	stateParked                         // an entry in its log wakes it
	stateOver                           // nothing follows in its log
	stateEnded                          // its swarm or the agent has ended
)

// starters is the number of shards that are acquired, examined and opened at a time. Acquiring a
// lease is a synced write of some milliseconds, mostly waiting.
const starters = 16

// key returns the key of the lease and of the wake-up of the shard. It does not change.
func (p *assignment) key() string { return swarms.LeaseKey(p.id.Swarm, p.id.Shard) }

// enqueue hands an assignment to the starters. a.mu is held.
func (a *Agent) enqueue(p *assignment) {
	p.state = stateQueued
	a.queue = append(a.queue, p)
	a.queued.Signal()
}

// wait leaves an assignment to retry. a.mu is held.
func (a *Agent) wait(p *assignment) {
	if p.state = stateWaiting; p.of.gone {
		a.enqueue(p)
	}
}

// a.mu is held.
func (a *Agent) enqueueAfter(p *assignment, d time.Duration) {
	p.state = stateWaiting
	time.AfterFunc(d, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.state == stateWaiting {
			a.enqueue(p)
		}
	})
}

// start starts assignments from the queue until ctx ends. Several starters run at a time. Only an
// assignment in stateQueued is queued, so no two starters take the same one.
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
			a.finish(ctx, p)
			continue
		}
		a.begin(ctx, p)
	}
}

// forget drops what a parked shard has left in memory. a.mu is held.
func (a *Agent) forget(p *assignment) {
	if p.rest != nil {
		a.parkedBytes -= p.rest.Bytes()
	}
	p.rest = nil
}

// begin acquires the lease of a shard if the agent has none, and then serves or parks the shard. If
// another agent holds the lease and has offered it, the shard is followed. If the lease cannot be
// had now, the assignment waits for retry, or is queued again after a pause.
func (a *Agent) begin(ctx context.Context, p *assignment) {
	a.mu.Lock()
	s, tries, held := a.session, a.retries, p.lease != nil
	switch {
	case !a.pool.Accepts(), s == nil: // retry starts it again
		a.wait(p)
		a.mu.Unlock()
		if s != nil {
			a.decline(ctx, s, p)
		}
		return
	case held:
	case a.full():
		a.wait(p)
		a.refuse()
		a.mu.Unlock()
		a.decline(ctx, s, p)
		return
	case len(p.of.assignments) > 1 && !p.paced:
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
		if errors.Is(err, swarms.ErrHeld) {
			_, follows = offered(s, p.key(), false)
		}
		a.mu.Lock()
		switch {
		case err == nil:
			p.lease = l
		case follows:
			p.follows, err = true, nil
		case errors.Is(err, swarms.ErrHeld) && tries == a.retries,
			errors.Is(err, jobs.ErrFenced): // retry starts it again
			a.wait(p)
		case errors.Is(err, swarms.ErrHeld):
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
		a.forget(p) // its rest is older than its checkpoint or its log
		a.mu.Unlock()
	} else if rest := a.answered(ctx, p); rest != nil {
		a.park(ctx, p, rest)
		return
	}
	open := a.openShards.Open(ctx)
	if p.served {
		open.Reopen()
	}
	if p.follows {
		open.Follow()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.of.gone || ctx.Err() != nil {
		a.openShards.Close(open)
		a.unfollow(p)
		a.enqueue(p)
		return
	}
	work, cancel := context.WithCancelCause(ctx)
	p.state, p.cancel, p.open = stateServed, cancel, open
	from := p.rest
	a.forget(p)
	a.running.Go(func() {
		defer cancel(nil)
		a.serve(work, p, from, open)
	})
}

var assignmentStates = map[assignmentState]string{
	stateQueued: "queued", stateWaiting: "waiting", stateServed: "served", stateParked: "parked", stateOver: "over",
}

func countAssignments(a *Agent) map[string]int {
	n := map[string]int{}
	for _, name := range assignmentStates {
		n[name] = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.assignments {
		n[assignmentStates[p.state]]++
	}
	return n
}
