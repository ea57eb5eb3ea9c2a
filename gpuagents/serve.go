package gpuagents

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// serve works on a shard once, and sets the next state of its assignment. The checkpoint stays
// until the swarm ends: a successor may need it for a shard whose log has ended.
func (a *Agent) serve(ctx context.Context, p *assignment, from *shard.Rest, open *shard.OpenShard) {
	err := a.work(ctx, p, from, open)
	a.openShards.Close(open)
	parked := (*shard.Rest)(nil)
	if errors.As(err, &parked) {
		a.park(ctx, p, parked)
		return
	}
	if errors.Is(context.Cause(ctx), errHanded) {
		a.handOver(ctx, p)
		return
	}
	ended, missing, wait := ctx.Err() != nil, false, time.Duration(0)
	a.mu.Lock()
	followed, s := a.unfollow(p), a.session
	a.mu.Unlock()
	switch {
	case err == nil, ended:
	case followed && errors.Is(err, errUnwanted):
		p.log.Info("the shard is not followed any more", "reason", err)
	case followed:
		p.log.Warn("the shard cannot be followed, it stays with its agent", "error", err)
		if s != nil {
			a.decline(ctx, s, p)
		}
		wait = time.Second
	case errors.Is(err, jobs.ErrNotFound):
		// The record is written before the logs and outlives them, so that no log is without a
		// record. The lease is kept.
		missing = true
		before := p.logMissing
		if p.logMissing = min(max(2*p.logMissing, firstMissing), time.Second); before < p.logMissing &&
			p.logMissing == time.Second {
			p.log.Info("the log of the shard is not there yet, or not any more: waiting for it, or for the end of " +
				"the swarm")
		}
		wait = p.logMissing
	case errors.Is(err, jobs.ErrFenced):
		a.losses.Add(1)
		p.log.Warn("shard lost to another agent", "error", err)
	case errors.Is(err, shard.ErrMoved), errors.Is(err, pool.ErrEmergency):
		p.log.Info("shard goes elsewhere", "level", a.Level().String())
	default:
		p.log.Error("shard failed, starting again", "error", err)
		wait = time.Second
	}
	if !missing {
		p.logMissing = 0
		a.release(ctx, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.cancel, p.served = nil, true
	switch {
	case p.of.gone, ended:
		a.enqueue(p)
	case err == nil:
		p.state = stateOver // nothing follows in this log
	case wait > 0:
		a.enqueueAfter(p, wait)
	default:
		a.enqueue(p)
	}
}

// firstMissing is the first wait for a missing log; the wait doubles up to a second. Creating a log
// takes some 5 ms.
const firstMissing = 10 * time.Millisecond

// work serves a shard as long as the agent has its lease and its device. It returns nil at the end
// of the log, jobs.ErrFenced without the lease, shard.ErrMoved when the device evicts the shard, a
// *shard.Rest when the shard is idle, and otherwise the failure. For a followed shard a goroutine
// acquires the lease while the log is applied; it has ended when work returns.
func (a *Agent) work(ctx context.Context, p *assignment, from *shard.Rest, open *shard.OpenShard) error {
	a.mu.Lock()
	lease, session := p.lease, a.session // a served shard has a lease, unless it is followed
	a.mu.Unlock()
	if lease == nil && (open.Followed() == nil || session == nil) {
		return jobs.ErrFenced
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := *p.of.record.Load()
	own := s
	own.Groups = state.RangeOf(s, p.id.Shard).Groups // its pages take memory for these groups
	on, err := a.pool.Take(work, func() int64 { return shard.Need(own) })
	if err != nil {
		return err
	}
	defer on.Release()
	members := a.join(on, own)
	defer members.release()
	stop, watched := make(chan struct{}), make(chan struct{})
	evicted := members.evicted(on, stop)
	followed := open.Followed()
	go func() {
		defer close(watched)
		if lease == nil {
			ended, end := context.WithCancel(work)
			defer end()
			go func() {
				defer end()
				select {
				case <-stop:
				case <-evicted:
					cancel(shard.ErrMoved)
				case <-ended.Done():
				}
			}()
			l, err := a.acquireFollowed(ended, p, session, followed)
			if err != nil {
				cancel(err)
				return
			}
			a.mu.Lock()
			p.takenOver = time.Now()
			a.mu.Unlock()
			lease = l
		}
		select {
		case <-lease.Lost():
			cancel(jobs.ErrFenced)
		case <-evicted:
			cancel(shard.ErrMoved)
		case <-stop:
		}
	}()
	defer func() { close(stop); <-watched; members.watch.Wait() }()
	do := shard.Task{
		On: on, Members: members.team(), Swarm: s, Shard: p.id.Shard, From: from, Open: open, Log: p.log,
	}
	if err = a.server.Serve(work, do); err != nil {
		members.failed(on, err)
	}
	return err
}
