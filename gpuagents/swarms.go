package gpuagents

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// servedSwarm is a swarm whose shards the agent serves or wants to serve. Agent.mu guards what is
// not atomic.
type servedSwarm struct {
	record      atomic.Pointer[swarms.Swarm] // the current record
	assignments []*assignment
	left        int           // assignments that have not ended
	gone        bool          // its assignments end
	again       *swarms.Swarm // a swarm with the same id, which starts when these assignments have ended; nil: none
	next        time.Time     // when the next lease may be acquired
}

// change handles a change of a record. WatchSwarms calls it, one call at a time. It does not wait.
func (a *Agent) change(ctx context.Context, c swarms.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, is := a.swarms[c.ID]
	switch {
	case c.Err != nil:
		a.o.Logger.Error("swarm ignored", "swarm", c.ID, "error", c.Err)
	case c.Gone && is:
		known.again = nil
		a.end(known)
	case c.Gone:
	case is && known.gone: // one swarm of an id at a time: log lines and metrics use the id
		known.again = &c.Swarm
	case is && !known.record.Load().Same(c.Swarm): // a failure of the queue has hidden the end of the first swarm
		known.again = &c.Swarm
		a.end(known)
	case is: // takes effect when the shard starts again
		known.record.Store(&c.Swarm)
	default:
		a.addSwarm(ctx, c.Swarm)
	}
}

// addSwarm makes the assignments of a swarm. a.mu is held.
func (a *Agent) addSwarm(ctx context.Context, s swarms.Swarm) {
	of := &servedSwarm{left: s.ShardCount()}
	of.record.Store(&s)
	a.swarms[s.ID] = of
	for _, k := range rand.Perm(s.ShardCount()) { // other agents try in another order
		log := a.o.Logger.With("swarm", s.ID)
		if s.ShardCount() > 1 {
			log = log.With("shard", k)
		}
		p := &assignment{id: shard.ID{Swarm: s.Key(), Shard: k}, of: of, log: log}
		of.assignments = append(of.assignments, p)
		a.assignments[p.key()] = p
		a.enqueue(p)
	}
}

// a.mu is held.
func (a *Agent) end(of *servedSwarm) {
	if of.gone {
		return
	}
	of.gone = true
	for _, p := range of.assignments {
		switch p.state {
		case stateServed:
			p.cancel(jobs.ErrNotFound)
		case stateWaiting, stateParked, stateOver:
			a.enqueue(p) // a starter ends it
		case stateQueued, stateEnded:
		}
	}
}

// finish ends an assignment whose swarm has ended. After the last one it starts the next swarm of
// the id.
func (a *Agent) finish(ctx context.Context, p *assignment) {
	a.wakes.Remove(p.key())
	a.release(ctx, p)
	removeCheckpoint(a, p.id)
	a.mu.Lock()
	defer a.mu.Unlock()
	p.state = stateEnded
	a.forget(p)
	delete(a.assignments, p.key())
	if p.of.left--; p.of.left > 0 {
		return
	}
	delete(a.swarms, p.of.record.Load().ID)
	if again := p.of.again; again != nil && ctx.Err() == nil {
		a.addSwarm(ctx, *again)
	}
}
