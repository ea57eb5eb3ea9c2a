package gpuagents

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// leasePace is the time between two attempts of an agent to acquire leases of one swarm, so that
// agents that hear of a swarm at the same time share its shards. A lease takes some 3 ms on a
// server that syncs; at this pace 64 shards take 1.6 s.
const leasePace = 25 * time.Millisecond

func (a *Agent) release(ctx context.Context, p *assignment) {
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
	// A lease that is not released within its time has ended by itself.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.o.LeaseTTL)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		p.log.Warn("lease not released", "error", err)
	}
	if waits { // there is room for a shard that was refused
		a.retry()
	}
}

// retry queues all assignments that wait. The caller has seen a change that may let one of them
// start: a lease is free, a device accepts work again, or there is room for a shard that was
// refused.
func (a *Agent) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retries++
	a.refused = false
	for _, p := range a.assignments {
		if p.state == stateWaiting {
			a.enqueue(p)
		}
	}
}

// keepSession keeps a session open, under which the agent holds all leases, and calls retry after
// each event that may let a waiting shard start.
func (a *Agent) keepSession(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := a.o.Queue.OpenSession(ctx, a.o.Name, a.o.LeaseTTL, a.o.Logger)
		if err != nil {
			if ctx.Err() == nil {
				a.o.Logger.Warn("session not opened, trying again", "error", err)
			}
			_ = retry.Sleep(ctx, a.o.LeaseTTL/10)
			continue
		}
		a.mu.Lock()
		a.session = s
		a.mu.Unlock()
		a.awaitSession(ctx, s)
		if ctx.Err() != nil {
			return // the session is closed after all shards have ended
		}
		a.mu.Lock()
		a.session = nil
		a.mu.Unlock()
		a.dropLostLeases()
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			a.o.Logger.Warn("closing a session", "error", err)
		}
	}
}

func (a *Agent) awaitSession(ctx context.Context, s swarms.Session) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		freed, moved := s.Freed(), a.pool.Changed()
		a.retry()
		for same := true; same; {
			select {
			case <-freed:
				same = false
			case <-moved:
				same = false
			case <-tick.C:
				a.openShards.Trim()
				a.dropLostLeases()
			case <-s.Lost():
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// dropLostLeases queues parked shards whose lease is lost. Served shards notice the loss
// themselves.
func (a *Agent) dropLostLeases() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.assignments {
		if p.state == stateParked && p.lostLease() {
			a.losses.Add(1)
			a.wakes.Remove(p.key())
			a.forget(p)
			p.lease = nil
			a.leases--
			a.enqueue(p)
		}
	}
}

func (p *assignment) lostLease() bool {
	select {
	case <-p.lease.Lost():
		return true
	default:
		return false
	}
}

// unfollow ends the following of a shard, and reports whether the shard was followed. a.mu is held.
func (a *Agent) unfollow(p *assignment) bool {
	was := p.follows
	if was {
		p.follows = false
		a.leases--
	}
	return was
}

func (a *Agent) decline(ctx context.Context, s swarms.Session, p *assignment) {
	if _, is := offered(s, p.key(), false); !is {
		return
	}
	if err := s.Withdraw(ctx, p.key()); err != nil && ctx.Err() == nil {
		p.log.Warn("the offer of a shard was not declined", "error", err)
	}
}

// refuse counts, and logs once a minute, that shards are left to other agents. a.mu is held.
func (a *Agent) refuse() {
	a.refused = true
	a.refusals.Add(1)
	if now := time.Now(); now.Sub(a.warned) > time.Minute {
		a.warned = now
		a.o.Logger.Warn("this agent takes no more shards, other agents may: start one more, or raise --max-shards or "+
			"--parked-memory", "shards", a.leases, "max_shards", a.o.MaxShards,
			"parked_bytes", a.parkedBytes, "parked_memory", a.o.ParkedMemory)
	}
}

// endSession gives all leases back, within the time of a lease. It runs after all shards have
// ended.
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

// offered returns the offer of a lease. own selects an offer by the session, else an offer to it.
func offered(s swarms.Session, key string, own bool) (swarms.Offer, bool) {
	for _, o := range s.Offers() {
		if o.Key == key && o.Own == own {
			return o, true
		}
	}
	return swarms.Offer{}, false
}

// acquireFollowed waits until ctx ends for the lease of a shard that this agent follows.
// errUnwanted: the shard is no longer offered.
func (a *Agent) acquireFollowed(
	ctx context.Context, p *assignment, s swarms.Session, f *shard.Follow,
) (swarms.Lease, error) {
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
		if !errors.Is(err, swarms.ErrHeld) {
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
