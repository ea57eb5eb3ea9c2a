package gpuagents

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

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

// post is a shard that the agent serves or waits for. A post that waits or is parked has no goroutine. Agent.mu guards what may change.
type post struct {
	id      ShardID
	of      *serving
	log     *slog.Logger
	state   postState
	lease   jobs.Lease              // nil: not held
	rest    *rest                   // what it has left in memory; nil: nothing
	cancel  context.CancelCauseFunc // of what serves it; nil: nothing does
	paced   bool                    // it has waited for its turn
	served  bool                    // it was served before
	seat    *opened                 // of what serves it
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

// leasePace is the time between two tries of an agent for leases of one swarm. Agents that hear of a swarm together then share its shards, in
// place of the first taking all: it is several times what taking a lease needs on a server that syncs, some 3 ms, and 64 shards are
// taken in 1.6 s.
const leasePace = 25 * time.Millisecond

// What an agent has unless it is told otherwise; RFC 0024 has the measurements.
const (
	// MaxShards is how many shards it takes at most.
	MaxShards = 16384
	// OpenShards is how many shards without anything to do stay open.
	OpenShards = 64
	// ParkedMemory is how many bytes the state of parked shards may take.
	ParkedMemory = 512 << 20
)

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
		p := &post{id: ShardID{s.Key(), k}, of: of, log: log}
		of.posts = append(of.posts, p)
		a.posts[p.key()] = p
		a.enqueue(p)
	}
}

// key is what the lease of a post is called, and its watch.
func (p *post) key() string { return jobs.LeaseKey(p.id.Swarm, p.id.Shard) }

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
		freed, moved := s.Freed(), a.fleet.changed.next()
		a.retry()
		for same := true; same; {
			select {
			case <-freed:
				same = false
			case <-moved:
				same = false
			case <-tick.C:
				a.open.trim()
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

// forget drops what a post has left in memory. a.mu is held.
func (a *Agent) forget(p *post) {
	if p.rest != nil {
		a.resting -= p.rest.bytes()
	}
	p.rest = nil
}

// begin takes the lease of a post that has none, and then serves or parks it.
func (a *Agent) begin(ctx context.Context, p *post) {
	a.mu.Lock()
	s, tries, held := a.session, a.tries, p.lease != nil
	switch {
	case !a.fleet.takes(), s == nil: // attend has it try again
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
	seat := a.open.take(ctx)
	seat.again = p.served
	if p.follows {
		seat.follow = newFollow()
		seat.fixed.Store(true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.of.gone || ctx.Err() != nil {
		a.open.leave(seat)
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

// answered looks whether a shard that was not served yet has nothing to do, while as many others are open as are kept open. It returns where its
// log ends then.
func (a *Agent) answered(ctx context.Context, p *post) *rest {
	a.mu.Lock()
	look := !p.served && p.rest == nil && a.open.full()
	a.mu.Unlock()
	if !look {
		return nil
	}
	in, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.In).Last(ctx)
	if err != nil || in.Seq == 0 { // one that is new is about to be asked something
		return nil
	}
	out, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.Out).Last(ctx)
	if err != nil || out.Ref < in.Seq {
		return nil
	}
	return &rest{entry: in.Seq, stored: true}
}

// park gives a post no goroutine until there is something new in its log.
func (a *Agent) park(ctx context.Context, p *post, r *rest) {
	a.mu.Lock()
	if p.of.gone || ctx.Err() != nil || p.bereft() {
		p.cancel = nil
		a.enqueue(p)
		a.mu.Unlock()
		return
	}
	p.state, p.cancel, p.served = postParked, nil, true
	if !r.stored {
		p.rest = r
		a.resting += r.bytes()
	}
	a.mu.Unlock()
	if err := a.wakes.Add(ctx, p.key(), a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.In), r.entry); err != nil {
		if ctx.Err() == nil {
			p.log.Warn("parked shard not watched, serving it again", "error", err)
		}
		a.wake(p.key())
	}
}

// wake serves a parked shard again.
func (a *Agent) wake(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.posts[key]; p != nil && p.state == postParked {
		a.enqueue(p)
	}
}

// listen wakes parked shards until ctx ends.
func (a *Agent) listen(ctx context.Context) {
	for {
		key, err := a.wakes.Next(ctx)
		if err != nil {
			return
		}
		a.wake(key)
	}
}

// serve works on a shard once, and says what happens to its post next. The checkpoint stays until the swarm is gone: a shard whose log has ended
// may be asked for again by a successor.
func (a *Agent) serve(ctx context.Context, p *post, from *rest, seat *opened) {
	err := a.hold(ctx, p, from, seat)
	a.open.leave(seat)
	parked := (*rest)(nil)
	if errors.As(err, &parked) {
		a.park(ctx, p, parked)
		return
	}
	if errors.Is(context.Cause(ctx), errHanded) {
		a.hand(ctx, p)
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
		// The record is written before the logs and outlives them, so that there is no log without a record. The lease is kept.
		missing = true
		before := p.missing
		if p.missing = min(max(2*p.missing, firstMissing), time.Second); before < p.missing && p.missing == time.Second {
			p.log.Info("the log of the shard is not there yet, or not any more: waiting for it, or for the end of the swarm")
		}
		wait = p.missing
	case errors.Is(err, jobs.ErrFenced):
		p.log.Warn("shard lost to another agent", "error", err)
	case errors.Is(err, errMoved):
		p.log.Info("shard goes elsewhere", "level", a.Level().String())
	default:
		p.log.Error("shard failed, starting again", "error", err)
		wait = time.Second
	}
	if !missing {
		p.missing = 0
		a.release(ctx, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.cancel, p.served = nil, true
	switch {
	case p.of.gone, ended:
		a.enqueue(p)
	case err == nil:
		p.state = postOver // nothing follows in this log
	case wait > 0:
		a.enqueueAfter(p, wait)
	default:
		a.enqueue(p)
	}
}

// firstMissing is how long an agent waits for a log before it looks again, doubled up to a second: making a log takes some 5 ms.
const firstMissing = 10 * time.Millisecond

// hold works on a shard as long as the lease and the device last.
func (a *Agent) hold(ctx context.Context, p *post, from *rest, seat *opened) error {
	a.mu.Lock()
	lease, session := p.lease, a.session // a lease is there as long as the post is served, unless it is followed
	a.mu.Unlock()
	if lease == nil && (seat.follow == nil || session == nil) {
		return jobs.ErrFenced
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := *p.of.record.Load()
	own := s
	own.Groups = holdingOf(s, p.id.Shard).groups // which is what its pages take
	on, err := a.fleet.take(work, own)
	if err != nil {
		return err
	}
	defer on.give()
	stop, watched := make(chan struct{}), make(chan struct{})
	seatFollow := seat.follow
	go func() {
		defer close(watched)
		if lease == nil {
			ended, end := context.WithCancel(work)
			defer end()
			go func() {
				defer end()
				select {
				case <-stop:
				case <-on.until:
					cancel(errMoved)
				case <-ended.Done():
				}
			}()
			l, err := a.shadow(ended, p, session, seatFollow)
			if err != nil {
				cancel(err)
				return
			}
			a.mu.Lock()
			p.took = time.Now()
			a.mu.Unlock()
			lease = l
		}
		select {
		case <-lease.Lost():
			cancel(jobs.ErrFenced)
		case <-on.until:
			cancel(errMoved)
		case <-stop:
		}
	}()
	defer func() { close(stop); <-watched }()
	if err = a.work(work, on, s, p.id.Shard, from, seat, p.log); err != nil {
		on.of.failed(on.seat, err)
	}
	return err
}

// pause waits for d or for ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
