package swarmlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// A session that waits for another one, between an Ask and the hand-over, polls the bucket every
// eagerEvery, for at most eagerFor.
const (
	eagerEvery = 20 * time.Millisecond
	eagerFor   = 10 * time.Second
)

func (s *Session) pause(every time.Duration) time.Duration {
	if time.Now().UnixNano() < s.eager.Load() {
		return min(every, eagerEvery)
	}
	return every
}

// concerns reports whether a change of a lease matters to this session: the lease is offered to it,
// or was handed to it, or its own offer has changed. It must be called with mu held.
func (s *Session) concerns(key string) bool {
	l := s.table.leases[key]
	return l.next == s.id || l.session == s.id && (s.held[key] == nil || l.next != "")
}

// Peers implements swarms.Session.
func (s *Session) Peers() []swarms.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.peers(s.id)
}

// peers returns the sessions of a table in the order of their keys. own is the session of this
// process.
func (t *leaseTable) peers(own string) []swarms.Peer {
	count := map[string]int{}
	for _, l := range t.leases {
		switch _, alive := t.sessions[l.next]; {
		case l.holder == "" || l.session == "":
		case l.next != "" && alive:
			count[l.next]++
		default:
			count[l.session]++
		}
	}
	var all []swarms.Peer
	for id, o := range t.sessions {
		all = append(all, swarms.Peer{
			Session: id, Holder: o.holder, Leases: count[id], Takes: o.takes, Asks: o.asks, Own: id == own,
		})
	}
	slices.SortFunc(all, func(a, b swarms.Peer) int { return cmp.Compare(a.Session, b.Session) })
	return all
}

// Offers implements swarms.Session.
func (s *Session) Offers() (all []swarms.Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.table.leases {
		if l.next == "" || l.session != s.id && l.next != s.id {
			continue
		}
		if _, alive := s.table.sessions[l.session]; alive || l.session == s.id {
			all = append(all, swarms.Offer{
				Key: key, From: l.session, To: l.next, Own: l.session == s.id, Ready: l.ready,
			})
		}
	}
	slices.SortFunc(all, func(a, b swarms.Offer) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Ask implements swarms.Session.
func (s *Session) Ask(on bool) {
	if s.asks.Swap(on) == on {
		return
	}
	if on {
		s.hasten()
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// hasten makes the session poll often for some time, from now on.
func (s *Session) hasten() {
	s.eager.Store(time.Now().Add(eagerFor).UnixNano())
	s.hurry()
}

// Offer implements swarms.Session. The session polls often then, to see that the other session is
// ready.
func (s *Session) Offer(ctx context.Context, key, to string) error {
	defer s.hasten()
	return s.rewrite(ctx, "offer", key, func(r *leaseRecord) bool {
		r.Next, r.Ready = to, false
		return r.Session == s.id && to != s.id
	})
}

// Ready implements swarms.Session.
func (s *Session) Ready(ctx context.Context, key string) error {
	err := s.rewrite(ctx, "follow", key, func(r *leaseRecord) bool {
		r.Ready = true
		return r.Next == s.id
	})
	// From the hand-over until this session learns of it no agent serves the shard, so it polls
	// often.
	if err == nil {
		s.hasten()
	}
	return err
}

// Withdraw implements swarms.Session.
func (s *Session) Withdraw(ctx context.Context, key string) error {
	err := s.rewrite(ctx, "withdraw the offer of", key, func(r *leaseRecord) bool {
		mine := r.Next != "" && (r.Next == s.id || r.Session == s.id)
		r.Next, r.Ready = "", false
		return mine
	})
	if errors.Is(err, jobs.ErrFenced) {
		return nil
	}
	return err
}

// Hand implements swarms.Session.
func (s *Session) Hand(ctx context.Context, key string) error {
	s.mu.Lock()
	to := s.table.sessions[s.table.leases[key].next]
	s.mu.Unlock()
	return s.rewrite(ctx, "hand over", key, func(r *leaseRecord) bool {
		mine := r.Session == s.id && r.Next != "" && to.holder != ""
		r.Holder, r.Session, r.Next, r.Ready = to.holder, r.Next, "", false
		return mine
	})
}

// rewrite applies change to the record of a lease. change returns false if the present record does
// not allow it; then rewrite fails with jobs.ErrFenced, and so it does if the record changes
// meanwhile.
func (s *Session) rewrite(ctx context.Context, what, key string, change func(*leaseRecord) bool) error {
	what += " lease " + key
	var now leaseRecord
	var rev uint64
	err := s.c.conn.Retry(ctx, what, func(ctx context.Context) error {
		m, err := s.c.conn.LastOnce(ctx, leaseStream, leaseSubject(key))
		if errors.Is(err, jobs.ErrNotFound) || err == nil &&
			(natsconn.IsTombstone(m.Header) || json.Unmarshal(m.Data, &now) != nil) {
			return fmt.Errorf("it is not held: %w", jobs.ErrFenced)
		}
		if err != nil {
			return err
		}
		was := now
		if !change(&now) {
			return fmt.Errorf("%s holds it, and it is offered to %q: %w", was.Holder, was.Next, jobs.ErrFenced)
		}
		value, err := json.Marshal(now)
		if err != nil {
			return err
		}
		rev, err = s.c.putLease(ctx, key, value, m.Seq)
		if natsconn.IsWrongRevision(err) {
			return fmt.Errorf("it was changed this moment: %w", jobs.ErrFenced)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.put(key, leaseState{rev: rev, session: now.Session, holder: now.Holder, next: now.Next, ready: now.Ready},
		time.Now())
	if h := s.held[key]; h != nil && now.Session == s.id {
		h.rev = max(h.rev, rev)
	} else if h != nil {
		delete(s.held, key)
	}
	s.hurry()
	return nil
}

// Move is the planned hand-over of a shard from one agent to another.
type Move struct {
	Shard string `json:"shard"` // its lease key
	From  string `json:"from"`
	To    string `json:"to"`
	State string `json:"state"` // planned, offered, followed, moved or refused

	from, to string // sessions
}

// States of a Move, in their order. The last two are final.
const (
	MovePlanned  = "planned"  // nothing is written yet
	MoveOffered  = "offered"  // the lease names the session that is to have it
	MoveFollowed = "followed" // the agent of that session has followed the shard up to the last answer
	MoveMoved    = "moved"    // that session holds the lease
	MoveRefused  = "refused"  // the lease has changed otherwise, or the offer was withdrawn
)

// PlanMoves returns the moves after which no GPU agent holds more than one shard more than another.
// Agents of versions before hand-overs keep their shards. It changes nothing.
func (sw *Swarms) PlanMoves(ctx context.Context) ([]Move, error) {
	t, err := sw.leaseTable(ctx)
	if err != nil {
		return nil, err
	}
	return t.moves(), nil
}

func (sw *Swarms) leaseTable(ctx context.Context) (leaseTable, error) {
	t := newLeaseTable()
	all, err := sw.conn.LastPerKey(ctx, "list leases", wire.LeaseBucket)
	for key, m := range all {
		t.change(leaseChange{key: key, seq: m.Seq, gone: natsconn.IsTombstone(m.Header), value: m.Data, at: m.Time},
			t.read)
	}
	return t, err
}

func (t *leaseTable) moves() (all []Move) {
	peers := slices.DeleteFunc(t.peers(""), func(p swarms.Peer) bool { return !p.Takes })
	if len(peers) < 2 {
		return nil
	}
	has := map[string][]string{} // keys that may move, by session
	for key, l := range t.leases {
		if l.holder != "" && l.next == "" {
			has[l.session] = append(has[l.session], key)
		}
	}
	for _, keys := range has {
		slices.Sort(keys)
	}
	for {
		byLeases := func(a, b swarms.Peer) int { return cmp.Compare(a.Leases, b.Leases) }
		least, most := slices.MinFunc(peers, byLeases), slices.MaxFunc(peers, byLeases)
		if keys := has[most.Session]; most.Leases-least.Leases < 2 || len(keys) == 0 {
			return all
		}
		keys := has[most.Session]
		key := keys[len(keys)-1]
		has[most.Session] = keys[:len(keys)-1]
		all = append(all, Move{
			Shard: key, From: most.Holder, To: least.Holder, State: MovePlanned, from: most.Session,
			to: least.Session,
		})
		for i := range peers {
			switch peers[i].Session {
			case most.Session:
				peers[i].Leases--
			case least.Session:
				peers[i].Leases++
			}
		}
	}
}

// OfferMoves offers the shards of planned moves to their agents, and updates the states of the
// moves. A move whose lease has changed since the plan is refused.
func (sw *Swarms) OfferMoves(ctx context.Context, all []Move) error {
	t, err := sw.leaseTable(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		m := &all[i]
		l := t.leases[m.Shard]
		if l.session != m.from || l.next != "" {
			m.State = MoveRefused
			continue
		}
		value, err := json.Marshal(leaseRecord{Version: jobs.Version, Holder: l.holder, Session: l.session, Next: m.to})
		if err != nil {
			return fmt.Errorf("offer lease %s: %w", m.Shard, err)
		}
		m.State = MoveOffered
		err = sw.conn.Retry(ctx, "offer lease "+m.Shard, func(ctx context.Context) error {
			_, err := sw.putLease(ctx, m.Shard, value, l.rev)
			if natsconn.IsWrongRevision(err) { // FollowMoves shows whether an earlier try has stored it
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// FollowMoves updates the states of moves, and reports whether all of them are moved or refused.
func (sw *Swarms) FollowMoves(ctx context.Context, all []Move) (over bool, err error) {
	t, err := sw.leaseTable(ctx)
	if err != nil {
		return false, err
	}
	over = true
	for i := range all {
		m := &all[i]
		if m.State == MoveMoved || m.State == MoveRefused {
			continue
		}
		switch l := t.leases[m.Shard]; {
		case l.session == m.to:
			m.State = MoveMoved
		case l.session != m.from || l.next != m.to:
			m.State = MoveRefused
		default:
			over = false
			if m.State = MoveOffered; l.ready {
				m.State = MoveFollowed
			}
		}
	}
	return over, nil
}
