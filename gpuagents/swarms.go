package gpuagents

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
)

// serving is a swarm of which the agent serves shards or wants to. Agent.mu guards what is not atomic.
type serving struct {
	record atomic.Pointer[jobs.Swarm] // as it is now
	posts  []*post
	left   int         // posts that have not ended
	gone   bool        // it was told to end
	again  *jobs.Swarm // the next swarm of the id, which waits until all shards of this one have ended; nil: none
	next   time.Time   // when the next try for a lease may begin
}

// change follows a record.
func (a *Agent) change(ctx context.Context, c jobs.SwarmChange) {
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
	case is && known.gone: // one swarm of an id at a time: their log lines and metrics share its name
		known.again = &c.Swarm
	case is && !known.record.Load().Same(c.Swarm): // the end of the first was not seen, as when the queue was away
		known.again = &c.Swarm
		a.end(known)
	case is: // for the next time that the shard starts
		known.record.Store(&c.Swarm)
	default:
		a.enlist(ctx, c.Swarm)
	}
}

// enlist makes the posts of a swarm. a.mu is held.
func (a *Agent) enlist(ctx context.Context, s jobs.Swarm) {
	of := &serving{left: s.ShardCount()}
	of.record.Store(&s)
	a.swarms[s.ID] = of
	for _, k := range rand.Perm(s.ShardCount()) { // others try in another order
		log := a.o.Logger.With("swarm", s.ID)
		if s.ShardCount() > 1 {
			log = log.With("shard", k)
		}
		p := &post{id: shard.ID{Swarm: s.Key(), Shard: k}, of: of, log: log}
		of.posts = append(of.posts, p)
		a.posts[p.key()] = p
		a.enqueue(p)
	}
}

// end has all posts of a swarm end. a.mu is held.
func (a *Agent) end(of *serving) {
	if of.gone {
		return
	}
	of.gone = true
	for _, p := range of.posts {
		switch p.state {
		case postServed:
			p.cancel(jobs.ErrNotFound)
		case postWaiting, postParked, postOver:
			a.enqueue(p) // a starter ends it
		case postQueued, postEnded:
		}
	}
}

// leave ends a post whose swarm is gone. The last one of its swarm makes room for the next of that name.
func (a *Agent) leave(ctx context.Context, p *post) {
	a.wakes.Remove(p.key())
	a.release(ctx, p)
	a.removeCheckpoint(p.id)
	a.mu.Lock()
	defer a.mu.Unlock()
	p.state = postEnded
	a.forget(p)
	delete(a.posts, p.key())
	if p.of.left--; p.of.left > 0 {
		return
	}
	delete(a.swarms, p.of.record.Load().ID)
	if again := p.of.again; again != nil && ctx.Err() == nil {
		a.enlist(ctx, *again)
	}
}
