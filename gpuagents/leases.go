package gpuagents

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
)

// leasePace is the time between two tries of an agent for leases of one swarm. Agents that hear of a swarm together then share its shards, in
// place of the first taking all: it is several times what taking a lease needs on a server that syncs, some 3 ms, and 64 shards are
// taken in 1.6 s.
const leasePace = 25 * time.Millisecond

// release gives the lease of a post back, if it has one.
func (a *Agent) release(ctx context.Context, p *post) {
	a.mu.Lock()
	l := p.lease
	if p.lease = nil; l != nil {
		a.leases--
	}
	waits := l != nil && a.refused
	a.mu.Unlock()
	if l == nil {
		return
	}
	if err := l.Release(context.WithoutCancel(ctx)); err != nil {
		p.log.Warn("lease not released", "error", err)
	}
	if waits { // there is room for a shard that was refused
		a.retry()
	}
}

// retry has all posts that wait try again.
func (a *Agent) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	a.refused = false
	for _, p := range a.posts {
		if p.state == postWaiting {
			a.enqueue(p)
		}
	}
}

// attend keeps a session open, under which all leases of the agent are held, and has those who wait try again when that may help.
func (a *Agent) attend(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := a.o.Queue.OpenSession(ctx, a.o.Name, a.o.LeaseTTL, a.o.Logger)
		if err != nil {
			if ctx.Err() == nil {
				a.o.Logger.Warn("session not opened, trying again", "error", err)
			}
			pause(ctx, a.o.LeaseTTL/10)
			continue
		}
		a.mu.Lock()
		a.session = s
		a.mu.Unlock()
		a.follow(ctx, s)
		if ctx.Err() != nil {
			return // the session is closed when all shards have been left
		}
		a.mu.Lock()
		a.session = nil
		a.mu.Unlock()
		a.bereave()
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			a.o.Logger.Warn("closing a session", "error", err)
		}
	}
}

// follow waits for the end of a session or of ctx.
func (a *Agent) follow(ctx context.Context, s jobs.Session) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		freed, moved := s.Freed(), a.fleet.Changed()
		a.retry()
		for same := true; same; {
			select {
			case <-freed:
				same = false
			case <-moved:
				same = false
			case <-tick.C:
				a.open.Trim()
				a.bereave()
			case <-s.Lost():
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// bereave has parked shards whose lease was lost try for it again. What is served hears of it by itself.
func (a *Agent) bereave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.posts {
		if p.state == postParked && p.bereft() {
			a.wakes.Remove(p.key())
			a.forget(p)
			p.lease = nil
			a.leases--
			a.enqueue(p)
		}
	}
}

// bereft reports whether a post has lost its lease.
func (p *post) bereft() bool {
	select {
	case <-p.lease.Lost():
		return true
	default:
		return false
	}
}

// unfollow ends the following of a shard, and reports whether it was followed. a.mu is held.
func (a *Agent) unfollow(p *post) bool {
	was := p.follows
	if was {
		p.follows = false
		a.leases--
	}
	return was
}

// decline takes back the offer of a shard to this agent, which cannot take it.
func (a *Agent) decline(ctx context.Context, s jobs.Session, p *post) {
	if _, is := offered(s, p.key(), false); !is {
		return
	}
	if err := s.Withdraw(ctx, p.key()); err != nil && ctx.Err() == nil {
		p.log.Warn("the offer of a shard was not declined", "error", err)
	}
}

// refuse says now and then that shards are left to others. a.mu is held.
func (a *Agent) refuse() {
	a.refused = true
	if now := time.Now(); now.Sub(a.told) > time.Minute {
		a.told = now
		a.o.Logger.Warn("this agent takes no more shards, other agents may: start one more, or raise --max-shards or --parked-memory",
			"shards", a.leases, "max_shards", a.o.MaxShards, "parked_bytes", a.resting, "parked_memory", a.o.ParkedMemory)
	}
}

// endSession gives back all leases that are left.
func (a *Agent) endSession() {
	if a.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.o.LeaseTTL)
	defer cancel()
	if err := a.session.Close(ctx); err != nil {
		a.o.Logger.Warn("session not closed, its leases end with their time", "error", err)
	}
}

// offered returns the offer of a lease to the session, or of it.
func offered(s jobs.Session, key string, own bool) (jobs.Offer, bool) {
	for _, o := range s.Offers() {
		if o.Key == key && o.Own == own {
			return o, true
		}
	}
	return jobs.Offer{}, false
}

// shadow waits for the lease of a shard that is followed, until ctx ends. It returns nil when the lease is not to be had any more.
func (a *Agent) shadow(ctx context.Context, p *post, s jobs.Session, f *shard.Follow) (jobs.Lease, error) {
	caughtUp := f.CaughtUp()
	for {
		freed := s.Freed()
		l, err := s.Acquire(ctx, p.key())
		if err == nil {
			a.mu.Lock()
			p.lease, p.follows = l, false
			a.mu.Unlock()
			f.Promote()
			return l, nil
		}
		if !errors.Is(err, jobs.ErrHeld) {
			return nil, err
		}
		if _, is := offered(s, p.key(), false); !is {
			return nil, errUnwanted
		}
		select {
		case <-freed:
		case <-caughtUp:
			if err := s.Ready(ctx, p.key()); err != nil {
				return nil, errors.Join(errUnwanted, err)
			}
			caughtUp = nil
		case <-s.Lost():
			return nil, jobs.ErrFenced
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
