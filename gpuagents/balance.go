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

// An agent that holds at least two shards more than another agent offers it a shard. The other
// agent follows the shard and then takes it over; RFC 0027 has the reasons. An agent with little
// work asks for shards, and the agent with the most shards offers one at once.
//
// Shards do not oscillate: a move needs a difference of two, which it reduces, and a shard stays
// for settleFactor times Options.Rebalance after it was taken over.

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
	agents  []string             // sessions at the last check
	since   time.Time            // since when they are the same
	offers  map[string]sentOffer // by lease key
	refused map[string]time.Time // by session: when it last refused a shard
	idle    time.Time            // since when the agent has little work; zero: it has not
}

// sentOffer is an offer of a shard to a session.
type sentOffer struct {
	to string
	at time.Time
}

func newBalancer(a *Agent) *balancer {
	return &balancer{
		a:       a,
		since:   time.Now(),
		offers:  map[string]sentOffer{},
		refused: map[string]time.Time{},
	}
}

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

// ask asks other agents for shards if this agent has room and less than half of the shards of the
// largest agent, which has at least two more. again tells when to call ask again; nil: at the next
// event.
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

func (a *Agent) takesMore() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pool.Accepts() && !a.full()
}

// attendOffers hands over shards that are caught up, and withdraws offers that were not accepted in
// time.
func (b *balancer) attendOffers(ctx context.Context, s swarms.Session) {
	a := b.a
	now, peers := time.Now(), s.Peers()
	open := map[string]bool{}
	for _, o := range s.Offers() {
		if !o.Own {
			continue
		}
		open[o.Key] = true
		if b.offers[o.Key].to != o.To {
			b.offers[o.Key] = sentOffer{o.To, now}
		}
		since := now.Sub(b.offers[o.Key].at)
		there := hasSession(peers, o.To)
		switch {
		case !there || since > maxOffer:
			b.refused[o.To] = now
			if err := s.Withdraw(ctx, o.Key); err != nil && ctx.Err() == nil {
				a.o.Logger.Warn("an offer of a shard was not taken back, trying again", "lease", o.Key, "error", err)
				continue
			}
			a.metrics.shard.HandedOver("withdrawn")
			a.o.Logger.Info("an offer of a shard is taken back", "lease", o.Key, "there", there,
				"since", since)
		case o.Ready:
			a.stopForHandover(ctx, o.Key)
		}
	}
	for key, sent := range b.offers {
		if open[key] {
			continue
		}
		if hasSession(peers, sent.to) && a.holds(key) { // the other agent has declined it
			b.refused[sent.to] = now
		}
		delete(b.offers, key)
	}
}

func hasSession(peers []swarms.Peer, session string) bool {
	return slices.ContainsFunc(peers, func(p swarms.Peer) bool { return p.Session == session })
}

func (a *Agent) holds(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.assignments[key]
	return p != nil && p.lease != nil
}

// offerOne offers a shard to the agent with the fewest shards, if it has at least two less. The set
// of agents must have been stable for Options.Rebalance. Before that, the agent with the most
// shards offers one to an agent that asks.
func (b *balancer) offerOne(ctx context.Context, s swarms.Session) {
	a := b.a
	now := time.Now()
	var sessions []string
	var own, least, asks, most *swarms.Peer
	peers := s.Peers()
	for i := range peers {
		p := &peers[i]
		sessions = append(sessions, p.Session)
		if most == nil || p.Leases > most.Leases { // the first one in the order of sessions
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
	b.offers[key] = sentOffer{to.Session, now}
	a.o.Logger.Info("a shard is offered to an agent with fewer", "lease", key, "to", to.Holder, "own", own.Leases,
		"others", to.Leases, "asked", to.Asks)
}

// pickOfferable returns the key of any shard that may move; "": there is none. Shards that wait for
// an entry are no load, so served shards come first.
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

// stopForHandover stops the work on a shard that another agent is ready to take. The goroutine of
// the shard then hands it over. A parked shard has no goroutine and is handed over here.
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

// handOver passes the lease of a stopped shard to the agent that accepted its offer. If that fails,
// it releases the lease, so that any agent may take the shard.
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
