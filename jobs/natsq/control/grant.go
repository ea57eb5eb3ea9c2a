package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// loop serves all tenants each grantTick, when it is woken, and when tokens may be there.
func (l *Limiter) loop(ctx context.Context) {
	timer := time.NewTimer(grantTick)
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-timer.C:
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		tick := time.Since(last) >= grantTick
		if tick {
			last = time.Now()
		}
		next := grantTick
		for name, t := range l.all() {
			pause, err := l.serve(ctx, name, t, tick)
			if err != nil && ctx.Err() == nil {
				l.Log.Warn("the record of a tenant cannot be written; its jobs wait", "tenant", name, "error", err)
				select {
				case <-time.After(min(time.Second, l.conn.Lease/6)):
				case <-ctx.Done():
				}
			}
			if pause > 0 {
				next = min(next, pause)
			}
		}
		timer.Reset(next)
	}
}

// serve brings the record of one tenant up to date: it gets what the worker wants and gives back
// what the worker does not use. tick reports whether a grantTick has passed. pause is the time
// until tokens may be available; with 0 the next tick is early enough.
func (l *Limiter) serve(ctx context.Context, name string, t *tenant, tick bool) (pause time.Duration, err error) {
	if l.Heartbeats.Unhealthy() { // other workers get its slots when its heartbeat has stood still for a lease
		return 0, nil
	}
	q := l.Quota(name)
	p := l.plan(name, t, q, tick)
	if len(p.wanted) > 0 && p.lookFirst {
		if p.wanted, err = l.withJobs(ctx, t, p.wanted); err != nil {
			return 0, err
		}
		if len(p.wanted) == 0 {
			p.MoreSlots, p.MoreTokens = 0, 0
		}
	}
	if p.MoreSlots > 0 {
		if p.Dead, err = l.deadHolders(ctx, name, t); err != nil {
			return 0, err
		}
	}
	if !p.write && p.MoreSlots == 0 && p.MoreTokens == 0 {
		return 0, nil
	}
	got, err := l.write(ctx, name, t, p.Demand)
	if err != nil {
		return 0, err
	}
	return l.granted(name, t, q, p.Demand, got), nil
}

// plan is the change that a record needs.
type plan struct {
	wire.Demand
	write     bool          // the record must be written, whether or not more is wanted
	wanted    []wire.Source // sources for which more is wanted
	lookFirst bool          // ask whether those have jobs
}

// plan decides what to demand of a record and what to give back. It removes the latter from the
// tenant at once.
func (l *Limiter) plan(name string, t *tenant, q wire.Quota, tick bool) (p plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.clock.elapsed()
	if tick {
		p.write = t.returnUnused(q, &p.Demand)
	}
	switch {
	case q.Concurrency == 0:
		t.spare = 0
		p.write = p.write || t.granted > 0
	case t.spare > 0 && t.record.Slots() > q.Concurrency: // the limit was lowered
		t.spare = 0
		p.write = true
	case t.granted > 0 && here-t.renewed > l.conn.Lease: // other workers may take this one for dead
		l.lose(name, t)
		p.write = true
	default:
		p.Beat = t.granted > 0 && here-t.renewed > l.conn.Lease/3
		p.write = p.write || p.Beat || t.running+t.spare != t.granted
	}
	p.write = p.write || t.unsure
	for s, n := range t.wanted {
		p.wanted = append(p.wanted, s)
		if q.Concurrency > 0 && t.spare == 0 {
			p.MoreSlots = max(p.MoreSlots, n)
		}
		if q.Rate > 0 && t.tokens == 0 {
			p.MoreTokens = max(p.MoreTokens, n)
		}
	}
	if len(p.wanted) > 0 && p.MoreSlots == 0 && p.MoreTokens == 0 { // there are some by now
		clear(t.wanted)
		p.wanted = nil
		l.Freed()
	}
	t.waiting = t.waiting && len(p.wanted) > 0
	p.lookFirst = t.lookFirst
	return p
}

// returnUnused gives back what was not used since the last tick, and reports whether that is
// anything. It must be called with mu held.
func (t *tenant) returnUnused(q wire.Quota, d *wire.Demand) bool {
	idle := min(t.lowSpare, t.spare)
	t.spare -= idle
	d.ReturnTokens = min(t.lowTokens, t.tokens)
	if q.Rate == 0 {
		d.ReturnTokens = t.tokens
	}
	t.tokens -= d.ReturnTokens
	t.lowSpare, t.lowTokens = t.spare, t.tokens
	unused := idle > 0 || d.ReturnTokens > 0
	t.lookFirst = t.lookFirst || unused
	return unused
}

// granted applies the result of a demand; got reports whether any of it was granted. pause is the
// time until tokens may be available, or 0.
func (l *Limiter) granted(name string, t *tenant, q wire.Quota, d wire.Demand, got bool) (pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waiting := !got && d.MoreSlots+d.MoreTokens > 0; waiting != t.waiting {
		if t.waiting = waiting; waiting && d.MoreSlots > 0 && t.record.Slots() >= q.Concurrency {
			l.Refused(name, ReasonConcurrency)
		} else if waiting {
			l.Refused(name, ReasonRate)
		}
	}
	if got {
		clear(t.wanted)
		l.Freed()
	} else if d.MoreTokens > 0 {
		if pause = t.record.Wait(q, l.clock.now()); pause > 0 { // with 0 slots are missing, not tokens
			pause = max(pause, time.Millisecond)
		}
	}
	return pause
}

// withJobs returns the sources that have jobs. The others are not wanted any more.
func (l *Limiter) withJobs(ctx context.Context, t *tenant, wanted []wire.Source) (left []wire.Source, err error) {
	for _, s := range wanted {
		try, cancel := context.WithTimeout(ctx, l.conn.Lease/3)
		found, err := l.HasJobs(try, s)
		cancel()
		if err != nil {
			return nil, err
		}
		if found {
			left = append(left, s)
			continue
		}
		l.mu.Lock()
		delete(t.wanted, s)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(left) > 0 {
		t.lookFirst = false
	}
	return left, nil
}

// deadHolders returns the holders of slots whose heartbeat counter did not change for a lease. It
// reads the record of the leader each time. A pause of more than half a lease between two reads
// restarts the wait, so that a time without the server makes no holder dead.
func (l *Limiter) deadHolders(ctx context.Context, name string, t *tenant) (dead []string, err error) {
	l.mu.Lock()
	due := l.clock.elapsed()-t.checked > l.conn.Lease/6 && len(t.record.Holders) > 0
	l.mu.Unlock()
	if !due {
		return nil, nil
	}
	if err := l.read(ctx, name, t); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.clock.elapsed()
	if here-t.checked > l.conn.Lease/2 {
		t.sightings = nil
	}
	t.checked = here
	sightings := map[string]sighting{}
	for id, h := range t.record.Holders {
		s, ok := t.sightings[id]
		if !ok || s.beat != h.Beat {
			s = sighting{h.Beat, here}
		}
		if sightings[id] = s; id != l.id && here-s.at > l.conn.Lease {
			dead = append(dead, id)
		}
	}
	t.sightings = sightings
	return dead, nil
}

// read learns the record as the leader has it.
func (l *Limiter) read(ctx context.Context, name string, t *tenant) error {
	try, cancel := context.WithTimeout(ctx, l.conn.Lease/3)
	defer cancel()
	m, err := l.conn.LastOnce(try, "KV_"+wire.TenantBucket, "$KV."+wire.TenantBucket+"."+recordKey(l.Pool, name))
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("read record %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.stale = false
	t.revision = 0 // a server that was restored counts from an earlier revision
	if err == nil {
		l.learn(name, t, m.Data, m.Seq)
		return nil
	}
	if t.record = (wire.QuotaRecord{}); t.granted > 0 {
		l.lose(name, t)
	}
	return nil
}

// write brings a record to what the worker has and demands. got reports whether the worker got some
// of its demand. A record that another worker changed is read and tried again.
func (l *Limiter) write(ctx context.Context, name string, t *tenant, d wire.Demand) (got bool, err error) {
	d.Worker = l.id
	for {
		l.mu.Lock()
		stale := t.stale
		l.mu.Unlock()
		if stale {
			if err := l.read(ctx, name, t); err != nil {
				return false, err
			}
		}
		q := l.Quota(name)
		l.mu.Lock()
		if d.Slots = 0; q.Concurrency > 0 {
			d.Slots = t.running + t.spare
		}
		next, slots, tokens, write := t.record.Apply(q, l.clock.now(), d)
		revision, began := t.revision, l.clock.elapsed()
		if !write {
			t.unsure = t.unsure && !stale
			t.granted = d.Slots
			l.mu.Unlock()
			return false, nil
		}
		t.granted = min(t.granted, d.Slots) // whether or not the answer comes
		l.mu.Unlock()
		data, err := json.Marshal(next)
		if err != nil {
			return false, err
		}
		try, cancel := context.WithTimeout(ctx, l.conn.Lease/3)
		answered := l.conn.Timed(natsconn.OpBucket)
		ack, err := l.conn.JS.PublishMsg(try, &nats.Msg{Subject: "$KV." + wire.TenantBucket + "." +
			recordKey(l.Pool, name), Data: data},
			jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
		answered(err)
		cancel()
		l.mu.Lock()
		if err != nil {
			t.stale = true
			if natsconn.IsWrongRevision(err) {
				l.mu.Unlock()
				continue
			}
			t.unsure = true
			l.mu.Unlock()
			return false, fmt.Errorf("write record %s: %w", name, err)
		}
		if ack.Sequence > t.revision {
			t.record, t.revision = next, ack.Sequence
		}
		t.granted, t.renewed, t.unsure = d.Slots+slots, began, false
		t.spare += slots
		t.tokens += tokens
		l.mu.Unlock()
		return slots+tokens > 0, nil
	}
}
