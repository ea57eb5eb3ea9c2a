package gpuagents

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// An agent that holds two shards more than another one offers it a shard, which that one follows
// and then takes over; RFC 0027 has the reasons. An agent with little work asks for shards, and the
// agent with the most offers it one at once.
//
// Shards do not go back and forth: a move needs a difference of two, which it makes smaller, and a
// shard that was taken over stays for settleFactor times Options.Rebalance.

const (
	// DefaultRebalance is how long the agents of a cluster must be the same before shards move.
	DefaultRebalance = 15 * time.Second
	// maxOffer is how long an offer may last: the other agent replays the log meanwhile.
	maxOffer = 10 * time.Minute
	// settleFactor is for how many times Options.Rebalance a shard stays that was taken over, and
	// an agent gets no offer that has not accepted one.
	settleFactor = 10
	// askAfter is how long an agent must have had little work before it asks. Agents that start
	// together have shared the shards by then that are free.
	askAfter = 250 * time.Millisecond
)

// balancer keeps the offers of an agent. One goroutine uses it.
type balancer struct {
	a       *Agent
	agents  []string             // sessions that there were
	since   time.Time            // since when they are the same
	offers  map[string]time.Time // by lease key: the time of the offer
	to      map[string]string    // by lease key: to which session
	refused map[string]time.Time // when it did not take a shard
	idle    time.Time            // since when the agent has little work; zero: it has not
}

// newBalancer returns the balancer of an agent.
func newBalancer(a *Agent) *balancer {
	return &balancer{
		a:       a,
		since:   time.Now(),
		offers:  map[string]time.Time{},
		to:      map[string]string{},
		refused: map[string]time.Time{},
	}
}

// run handles offers until ctx ends.
func (b *balancer) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	a := b.a
	for {
		a.mu.Lock()
		s := a.session
		a.mu.Unlock()
		var freed <-chan struct{}
		var again <-chan time.Time
		if s == nil {
			again = time.After(askAfter)
		} else {
			freed = s.Freed()
			b.attendOffers(ctx, s)
			if a.o.Rebalance > 0 {
				b.offerOne(ctx, s)
				again = b.ask(s)
			}
		}
		select {
		case <-tick.C:
		case <-again:
		case <-freed:
		case <-ctx.Done():
			return
		}
	}
}

// ask says whether the agent asks others for shards: it has room, and less than half of the shards of
// the agent with the most, which has two more. It returns a channel that tells when to call it again,
// or nil.
func (b *balancer) ask(s swarms.Session) (again <-chan time.Time) {
	own, most := 0, 0
	for _, p := range s.Peers() {
		if p.Own {
			own = p.Leases
		} else if p.Takes {
			most = max(most, p.Leases)
		}
	}
	if most-own < 2 || 2*own >= most || !b.a.takesMore() {
		b.idle = time.Time{}
		s.Ask(false)
		return nil
	}
	now := time.Now()
	if b.idle.IsZero() {
		b.idle = now
	}
	if wait := askAfter - now.Sub(b.idle); wait > 0 {
		return time.After(wait)
	}
	s.Ask(true)
	return nil
}

// takesMore reports whether the agent has room for another shard.
func (a *Agent) takesMore() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pool.Accepts() && a.leases < a.o.MaxShards && a.parkedBytes < a.o.ParkedMemory
}

// attendOffers hands over shards that are followed, and withdraws offers that were not accepted.
func (b *balancer) attendOffers(ctx context.Context, s swarms.Session) {
	a := b.a
	now, peers := time.Now(), s.Peers()
	open := map[string]bool{}
	for _, o := range s.Offers() {
		if !o.Own {
			continue
		}
		open[o.Key] = true
		if b.offers[o.Key].IsZero() || b.to[o.Key] != o.To {
			b.offers[o.Key], b.to[o.Key] = now, o.To
		}
		there := slices.ContainsFunc(peers, func(p swarms.Peer) bool { return p.Session == o.To })
		switch {
		case !there || now.Sub(b.offers[o.Key]) > maxOffer:
			b.refused[o.To] = now
			if err := s.Withdraw(ctx, o.Key); err != nil && ctx.Err() == nil {
				a.o.Logger.Warn("an offer of a shard was not taken back, trying again", "lease", o.Key, "error", err)
				continue
			}
			a.metrics.shard.HandedOver("withdrawn")
			a.o.Logger.Info(
				"an offer of a shard is taken back", "lease", o.Key, "there", there, "since",
				now.Sub(b.offers[o.Key]),
			)
		case o.Ready:
			a.stopForHandover(ctx, o.Key)
		}
	}
	for key, to := range b.to {
		if open[key] {
			continue
		}
		if there := slices.ContainsFunc(peers, func(p swarms.Peer) bool { return p.Session == to }); there &&
			a.holds(key) { // the other agent has declined it
			b.refused[to] = now
		}
		delete(b.offers, key)
		delete(b.to, key)
	}
}

// holds reports whether the agent has a lease.
func (a *Agent) holds(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.assignments[key]
	return p != nil && p.lease != nil
}

// offerOne offers a shard to the agent with the fewest, if that has two less. The agents must have been
// the same for long enough, or that one asks and no agent has more than this one.
func (b *balancer) offerOne(ctx context.Context, s swarms.Session) {
	a := b.a
	now := time.Now()
	var sessions []string
	var own, least, asks, most *swarms.Peer
	peers := s.Peers()
	for i := range peers {
		p := &peers[i]
		sessions = append(sessions, p.Session)
		if most == nil || p.Leases > most.Leases { // of several the first, in the order of sessions
			most = p
		}
		if p.Own {
			own = p
			continue
		}
		if !p.Takes || now.Sub(b.refused[p.Session]) < settleFactor*a.o.Rebalance {
			continue
		}
		if least == nil || p.Leases < least.Leases {
			least = p
		}
		if p.Asks && (asks == nil || p.Leases < asks.Leases) {
			asks = p
		}
	}
	if !slices.Equal(sessions, b.agents) {
		b.agents, b.since = sessions, now
	}
	to := least
	if now.Sub(b.since) < a.o.Rebalance {
		if to = asks; most != own {
			return
		}
	}
	if own == nil || to == nil || own.Leases-to.Leases < 2 || len(b.offers) > 0 {
		return
	}
	key := a.pickOfferable(now)
	if key == "" {
		return
	}
	if err := s.Offer(ctx, key, to.Session); err != nil {
		if ctx.Err() == nil {
			a.o.Logger.Warn("a shard was not offered", "lease", key, "to", to.Holder, "error", err)
		}
		return
	}
	b.offers[key], b.to[key] = now, to.Session
	a.o.Logger.Info(
		"a shard is offered to an agent with fewer", "lease", key, "to", to.Holder, "own", own.Leases,
		"others", to.Leases, "asked", to.Asks,
	)
}

// pickOfferable returns the key of any shard that may go to another agent; "": there is none. One that
// is served comes before shards that wait for an entry, which are no work.
func (a *Agent) pickOfferable(now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all, parked []string
	for key, p := range a.assignments {
		switch {
		case p.lease == nil || now.Sub(p.takenOver) < settleFactor*a.o.Rebalance:
		case p.state == stateServed:
			all = append(all, key)
		case p.state == stateParked:
			parked = append(parked, key)
		}
	}
	if len(all) == 0 {
		all = parked
	}
	if len(all) == 0 {
		return ""
	}
	return all[rand.IntN(len(all))]
}

// stopForHandover stops the work on a shard that another agent is ready for. The goroutine that
// serves the shard then hands it over. A parked shard has no such goroutine and is handed over
// here.
func (a *Agent) stopForHandover(ctx context.Context, key string) {
	a.mu.Lock()
	p := a.assignments[key]
	if p == nil || p.lease == nil {
		a.mu.Unlock()
		return
	}
	switch p.state {
	case stateServed:
		p.stopped = time.Now()
		p.cancel(errHanded)
		a.mu.Unlock()
	case stateParked:
		a.wakes.Remove(p.key())
		a.forget(p)
		p.state, p.stopped = stateServed, time.Now()
		p.cancel, p.open = func(error) {}, &shard.OpenShard{}
		a.mu.Unlock()
		a.handOver(ctx, p)
	default: // it starts or ends: the next call stops it
		a.mu.Unlock()
	}
}

// handOver gives the lease of a shard that is stopped to the agent that accepted its offer. If that
// fails, it releases the lease, so that any agent may take the shard, this one included.
func (a *Agent) handOver(ctx context.Context, p *assignment) {
	a.mu.Lock()
	l, s := p.lease, a.session
	a.mu.Unlock()
	err := jobs.ErrFenced
	if s != nil && l != nil {
		err = s.Hand(context.WithoutCancel(ctx), p.key())
	}
	if err != nil {
		p.log.Warn("shard not handed over, others may take it", "error", err)
		a.release(ctx, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.cancel, p.served = nil, true
	if err != nil {
		a.enqueue(p)
		return
	}
	p.lease = nil
	a.leases--
	took := time.Since(p.stopped)
	a.metrics.shard.HandedOver("given")
	a.metrics.shard.Parted(took)
	p.log.Info("shard handed over to another agent", "took", took)
	a.wait(p)
}
