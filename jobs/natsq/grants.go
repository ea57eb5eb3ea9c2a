package natsq

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
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func (l *limiter) loop(ctx context.Context) {
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
				l.log.Warn("the account of a tenant cannot be written; its jobs wait", "tenant", name, "error", err)
				select {
				case <-time.After(min(time.Second, l.c.Lease/6)):
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

// serve gets what the worker wants of an account and gives back what it does not use. pause is how
// long until tokens may be there, 0 for no matter.
func (l *limiter) serve(ctx context.Context, name string, t *tenant, tick bool) (pause time.Duration, err error) {
	if l.held.ill() { // others get its slots when its beat has stood still for a lease
		return 0, nil
	}
	q := l.quota(name)
	l.mu.Lock()
	here := time.Since(l.base)
	var d quota.Demand
	write := false
	if tick {
		idle := min(t.lowSpare, t.spare)
		t.spare -= idle
		d.ReturnTokens = min(t.lowToken, t.tokens)
		if q.Rate == 0 {
			d.ReturnTokens = t.tokens
		}
		t.tokens -= d.ReturnTokens
		t.lowSpare, t.lowToken = t.spare, t.tokens
		t.doubt = t.doubt || idle > 0 || d.ReturnTokens > 0
		write = idle > 0 || d.ReturnTokens > 0
	}
	switch {
	case q.Concurrency == 0:
		t.spare = 0
		write = write || t.mine > 0
	case t.spare > 0 && t.acc.Slots() > q.Concurrency: // the limit was lowered
		t.spare = 0
		write = true
	case t.mine > 0 && here-t.beat > l.c.Lease: // others may take them for those of a dead worker
		l.lose(name, t)
		write = true
	default:
		d.Beat = t.mine > 0 && here-t.beat > l.c.Lease/3
		write = write || d.Beat || t.running+t.spare != t.mine
	}
	write = write || t.unsure
	var wanted []wire.Source
	for s, n := range t.wanted {
		wanted = append(wanted, s)
		if q.Concurrency > 0 && t.spare == 0 {
			d.MoreSlots = max(d.MoreSlots, n)
		}
		if q.Rate > 0 && t.tokens == 0 {
			d.MoreTokens = max(d.MoreTokens, n)
		}
	}
	if len(wanted) > 0 && d.MoreSlots == 0 && d.MoreTokens == 0 { // there is some by now
		clear(t.wanted)
		wanted = nil
		l.poke()
	}
	t.waits = t.waits && len(wanted) > 0
	doubt := t.doubt
	l.mu.Unlock()
	if len(wanted) > 0 && doubt {
		if wanted, err = l.look(ctx, t, wanted); err != nil {
			return 0, err
		}
		if len(wanted) == 0 {
			d.MoreSlots, d.MoreTokens = 0, 0
		}
	}
	if d.MoreSlots > 0 {
		if d.Dead, err = l.check(ctx, name, t); err != nil {
			return 0, err
		}
	}
	if !write && d.MoreSlots == 0 && d.MoreTokens == 0 {
		return 0, nil
	}
	got, err := l.write(ctx, name, t, d)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits := !got && d.MoreSlots+d.MoreTokens > 0; waits != t.waits {
		if t.waits = waits; waits && d.MoreSlots > 0 && t.acc.Slots() >= q.Concurrency {
			l.refused(name, reasonConcurrency)
		} else if waits {
			l.refused(name, reasonRate)
		}
	}
	if got {
		clear(t.wanted)
		l.poke()
	} else if d.MoreTokens > 0 {
		if pause = t.acc.Wait(q, l.now()); pause > 0 { // else it is slots that are missing
			pause = max(pause, time.Millisecond)
		}
	}
	return pause, nil
}

// look leaves of the sources those that have jobs.
func (l *limiter) look(ctx context.Context, t *tenant, wanted []wire.Source) (left []wire.Source, err error) {
	for _, s := range wanted {
		try, cancel := context.WithTimeout(ctx, l.c.Lease/3)
		there, err := l.there(try, s)
		cancel()
		if err != nil {
			return nil, err
		}
		if there {
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
		t.doubt = false
	}
	return left, nil
}

// check lists the holders that have shown no life for a lease, as seen from here by looks at the
// leader, each less than half a lease after the one before: a time without the server counts for
// nobody.
func (l *limiter) check(ctx context.Context, name string, t *tenant) (dead []string, err error) {
	l.mu.Lock()
	due := time.Since(l.base)-t.checked > l.c.Lease/6 && len(t.acc.Holders) > 0
	l.mu.Unlock()
	if !due {
		return nil, nil
	}
	if err := l.read(ctx, name, t); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	here := time.Since(l.base)
	if here-t.checked > l.c.Lease/2 {
		t.others = nil
	}
	t.checked = here
	others := map[string]sign{}
	for id, h := range t.acc.Holders {
		s, ok := t.others[id]
		if !ok || s.beat != h.Beat {
			s = sign{h.Beat, here}
		}
		if others[id] = s; id != l.id && here-s.at > l.c.Lease {
			dead = append(dead, id)
		}
	}
	t.others = others
	return dead, nil
}

// read learns the account as the leader has it.
func (l *limiter) read(ctx context.Context, name string, t *tenant) error {
	try, cancel := context.WithTimeout(ctx, l.c.Lease/3)
	defer cancel()
	m, err := l.c.LastOnce(try, "KV_"+wire.TenantBucket, "$KV."+wire.TenantBucket+"."+accountKey(l.pool, name))
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("read account %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.stale = false
	t.revision = 0 // a server that was restored counts anew
	if err == nil {
		l.learn(name, t, m.Data, m.Seq)
		return nil
	}
	if t.acc = (quota.Record{}); t.mine > 0 {
		l.lose(name, t)
	}
	return nil
}

// write brings an account to what the worker has and wants; got says that it got some of that.
func (l *limiter) write(ctx context.Context, name string, t *tenant, d quota.Demand) (got bool, err error) {
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
		q := l.quota(name)
		l.mu.Lock()
		if d.Slots = 0; q.Concurrency > 0 {
			d.Slots = t.running + t.spare
		}
		next, slots, tokens, write := t.acc.Apply(q, l.now(), d)
		revision, began := t.revision, time.Since(l.base)
		if !write {
			t.unsure = t.unsure && !stale
			t.mine = d.Slots
			l.mu.Unlock()
			return false, nil
		}
		t.mine = min(t.mine, d.Slots) // whether or not the answer comes
		l.mu.Unlock()
		data, err := json.Marshal(next)
		if err != nil {
			return false, err
		}
		try, cancel := context.WithTimeout(ctx, l.c.Lease/3)
		ack, err := l.c.JS.PublishMsg(try, &nats.Msg{Subject: "$KV." + wire.TenantBucket + "." +
			accountKey(l.pool, name), Data: data},
			jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
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
			return false, fmt.Errorf("write account %s: %w", name, err)
		}
		if ack.Sequence > t.revision {
			t.acc, t.revision = next, ack.Sequence
		}
		t.mine, t.beat, t.unsure = d.Slots+slots, began, false
		t.spare += slots
		t.tokens += tokens
		l.mu.Unlock()
		return slots+tokens > 0, nil
	}
}
