package swarmlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Session is a swarms.Session. It has one record in the bucket of leases, and renews only that
// record. A lease names the session that holds it, and is valid as long as the record of the
// session exists. So a process with 10,000 leases writes as often as one with a single lease.
//
// A session that observes no renewal of another session for the other's ttl removes its record, at
// the revision that it has read. The removal fails if the other session is alive, so no clocks are
// compared. After it the leases of that session are free, and a compare-and-set takes each.
type Session struct {
	c       *Swarms
	id      string
	holder  string
	ttl     time.Duration
	log     *slog.Logger
	stop    context.CancelFunc
	ended   sync.WaitGroup
	once    sync.Once
	err     error // of Close
	lost    chan struct{}
	look    chan struct{} // asks for a poll before the next period
	eager   atomic.Int64  // polls are frequent until this time, in Unix nanoseconds
	asks    atomic.Bool   // whether the record asks other agents for shards
	changed chan struct{} // the record has changed: asks for a renewal before the next period

	mu    sync.Mutex
	rev   uint64            // revision of the record
	held  map[string]*lease // by key
	table leaseTable
	freed chan struct{} // closed and replaced when a lease may have become free
}

// sessionPrefix begins the keys of the records of sessions. A lease key has no slash, so the two
// are never equal.
const sessionPrefix = "session/"

type leaseRecord struct {
	Version int    `json:"v"`
	Holder  string `json:"holder"`  // for people
	Session string `json:"session"` // the key of its record
	// Next is the key of the session to which the lease is offered; empty if it is not offered.
	// Ready reports whether the agent of Next has followed the shard up to the last answer.
	Next  string `json:"next,omitempty"`
	Ready bool   `json:"ready,omitempty"`
}

type sessionRecord struct {
	Version int    `json:"v"`
	Holder  string `json:"holder"`
	TTL     int64  `json:"ttl_ms"`
	// Takes reports whether the session takes part in hand-overs. Earlier programs do not.
	Takes bool `json:"takes,omitempty"`
	// Asks reports whether the agent has little work and asks other agents for shards.
	Asks bool `json:"asks,omitempty"`
}

// pollMost bounds the pause between two polls of the bucket, and so the delay until a session
// learns of a free lease.
const pollMost = time.Second

// OpenSession opens a session of an agent with the name holder, and reads the bucket once. Other
// sessions may take its leases when it was not renewed for ttl. It starts two goroutines, which run
// until Close or until the session is lost.
func (sw *Swarms) OpenSession(ctx context.Context, holder string, ttl time.Duration,
	log *slog.Logger,
) (swarms.Session, error) {
	s := &Session{
		c: sw, id: sessionPrefix + natsconn.NewID(), holder: holder, ttl: ttl, log: log, lost: make(chan struct{}),
		look: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		held: map[string]*lease{}, table: newLeaseTable(), freed: make(chan struct{}),
	}
	value, err := s.record()
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	err = sw.conn.Retry(ctx, "open a session of "+holder, func(ctx context.Context) (err error) {
		s.rev, err = sw.putLease(ctx, s.id, value, 0)
		if natsconn.IsWrongRevision(err) { // an earlier try has stored it
			s.rev, err = s.own(ctx)
		}
		return err
	})
	if err == nil {
		err = sw.conn.Retry(ctx, "list leases", s.poll)
	}
	if err != nil {
		return nil, err
	}
	var run context.Context
	run, s.stop = context.WithCancel(context.Background())
	s.ended.Go(func() { s.renew(run) })
	s.ended.Go(func() { s.follow(run) })
	return s, nil
}

func (s *Session) record() ([]byte, error) {
	return json.Marshal(sessionRecord{
		Version: jobs.Version, Holder: s.holder, TTL: s.ttl.Milliseconds(), Takes: true, Asks: s.asks.Load(),
	})
}

// putLease writes a key of the bucket if its revision is still rev; 0 means that it was never
// written. It returns the new revision.
func (sw *Swarms) putLease(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	return sw.writeLease(ctx, &nats.Msg{Subject: leaseSubject(key), Data: value}, rev)
}

func (sw *Swarms) removeLease(ctx context.Context, key string, rev uint64) (uint64, error) {
	return sw.removeMarked(ctx, key, nil, rev)
}

// removeMarked is removeLease with the reason of the removal as a mark (lostMark).
func (sw *Swarms) removeMarked(ctx context.Context, key string, mark []byte, rev uint64) (uint64, error) {
	return sw.writeLease(ctx, &nats.Msg{
		Subject: leaseSubject(key), Header: nats.Header{"KV-Operation": {"DEL"}},
		Data: mark,
	}, rev)
}

// writeLease publishes a message for a key at a revision, in a single try.
func (sw *Swarms) writeLease(ctx context.Context, m *nats.Msg, rev uint64) (uint64, error) {
	answered := sw.conn.Timed(natsconn.OpBucket)
	ack, err := sw.conn.JS.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(rev),
		jetstream.WithRetryAttempts(0))
	answered(err)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

const leaseStream = "KV_" + wire.LeaseBucket

func leaseSubject(key string) string { return "$KV." + wire.LeaseBucket + "." + key }

// own asks the server for the revision of the record of this session. No other process writes the
// record. own fails with jobs.ErrNotFound if another process has removed it.
func (s *Session) own(ctx context.Context) (uint64, error) {
	m, err := s.c.conn.LastOnce(ctx, leaseStream, leaseSubject(s.id))
	if err == nil && natsconn.IsTombstone(m.Header) {
		err = jobs.ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// Acquire implements swarms.Session. It asks the server only if the table of the session does not
// show a holder.
func (s *Session) Acquire(ctx context.Context, key string) (swarms.Lease, error) {
	value, err := json.Marshal(leaseRecord{Version: jobs.Version, Holder: s.holder, Session: s.id})
	if err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	s.mu.Lock()
	was, again := s.table.leases[key], s.held[key] != nil
	free := s.table.free(was, s.id, s.ttl, time.Now())
	s.mu.Unlock()
	switch {
	case s.isLost():
		return nil, fmt.Errorf("acquire lease %s: the session was lost: %w", key, jobs.ErrFenced)
	case again:
		return nil, fmt.Errorf("lease %s is held by this session: %w", key, swarms.ErrHeld)
	case !free:
		return nil, fmt.Errorf("lease %s is held by %s: %w", key, was.holder, swarms.ErrHeld)
	}
	var rev uint64
	err = s.c.conn.Retry(ctx, "acquire lease "+key, func(ctx context.Context) (err error) {
		// The table may come from a replica that is behind, so the leader must confirm the end of
		// the other session.
		if was.session != "" && was.session != s.id {
			if err := s.gone(ctx, was.session); err != nil {
				return err
			}
		}
		rev, err = s.c.putLease(ctx, key, value, was.rev)
		if !natsconn.IsWrongRevision(err) {
			return err
		}
		m, lerr := s.c.conn.LastOnce(ctx, leaseStream, leaseSubject(key))
		// An earlier try may have stored the lease.
		if lerr == nil && !natsconn.IsTombstone(m.Header) && readLease(m.Data).session == s.id {
			rev = m.Seq
			return nil
		}
		return errors.Join(swarms.ErrHeld, err)
	})
	if errors.Is(err, swarms.ErrHeld) {
		s.hurry()
		return nil, fmt.Errorf("lease %s was taken this moment: %w", key, swarms.ErrHeld)
	}
	if err != nil {
		return nil, err
	}
	l := &lease{s: s, key: key, rev: rev, lost: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.put(key, leaseState{rev: rev, session: s.id, holder: s.holder}, time.Now())
	if s.isLost() {
		l.lose()
		return l, nil
	}
	s.held[key] = l
	if was.session != "" || was.holder != "" {
		s.log.Debug("lease taken over", "lease", key, "from", was.holder)
	}
	return l, nil
}

// gone asks the leader of the bucket whether a session has ended. It fails with swarms.ErrHeld if
// it has not.
func (s *Session) gone(ctx context.Context, session string) error {
	m, err := s.c.conn.LastOnce(ctx, leaseStream, leaseSubject(session))
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return nil
	case err != nil:
		return err
	case natsconn.IsTombstone(m.Header):
		return nil
	}
	return swarms.ErrHeld
}

// Lost implements swarms.Session.
func (s *Session) Lost() <-chan struct{} { return s.lost }

func (s *Session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// Freed implements swarms.Session. The caller must get a new channel after each close, and get it
// before it tries to acquire, so that it misses nothing.
func (s *Session) Freed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// Close implements swarms.Session. It removes the record, which frees all leases with one write.
func (s *Session) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.stop()
		s.ended.Wait()
		if s.isLost() {
			return
		}
		s.err = s.c.conn.Retry(ctx, "close the session of "+s.holder, func(ctx context.Context) error {
			_, err := s.c.removeLease(ctx, s.id, s.rev)
			if !natsconn.IsWrongRevision(err) {
				return err
			}
			// A renewal was stored whose answer was lost, or the record was removed.
			if s.rev, err = s.own(ctx); err != nil {
				return err
			}
			return nats.ErrTimeout // once more, with that revision
		})
		if errors.Is(s.err, jobs.ErrNotFound) {
			s.err = nil
		}
		s.lose()
	})
	return s.err
}

// renew renews all leases of the session: it writes the one record of the session each third of
// the ttl and when the record changes, until ctx ends or the session is lost. While the server is
// away it tries again. No other process can take a lease meanwhile, and the session continues
// unless another process has removed the record.
func (s *Session) renew(ctx context.Context) {
	tick := time.NewTicker(s.ttl / 3)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-tick.C:
		case <-s.changed:
		case <-s.lost:
			return
		case <-ctx.Done():
			return
		}
		value, err := s.record()
		if err != nil {
			continue
		}
		try, cancel := context.WithTimeout(ctx, max(s.ttl/3, 100*time.Millisecond))
		rev, err := s.c.putLease(try, s.id, value, s.rev)
		if natsconn.IsWrongRevision(err) { // another process has removed it, or an earlier write was stored
			if rev, err = s.own(try); err == nil && rev < s.rev { // the bucket was restored to an earlier state
				err = jobs.ErrNotFound
			}
			if err == nil {
				rev, err = s.c.putLease(try, s.id, value, rev)
			}
		}
		cancel()
		switch {
		case err == nil:
			s.rev, renewed = rev, time.Now()
		case ctx.Err() != nil:
			return
		case errors.Is(err, jobs.ErrNotFound):
			s.log.Warn("session lost: its leases go to others", "session", s.id, "leases", s.count(), "since_renewed",
				time.Since(renewed))
			s.lose()
			return
		case time.Since(renewed) > s.ttl && !natsconn.IsTransient(err):
			// The connection is closed, or its user has lost the permission.
			s.log.Warn("session lost: it cannot be renewed", "session", s.id, "leases", s.count(), "error", err)
			s.lose()
			return
		}
	}
}

func (s *Session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// lose ends the session and all leases under it.
func (s *Session) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost() {
		return
	}
	close(s.lost)
	for _, l := range s.held {
		l.lose()
	}
	clear(s.held)
	s.ring()
}

// ring closes the channel of Freed and makes a new one. It must be called with mu held.
func (s *Session) ring() {
	close(s.freed)
	s.freed = make(chan struct{})
}

// hurry makes the next poll of the bucket begin now. It never waits.
func (s *Session) hurry() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// lease is a swarms.Lease of a session. rev is the revision of the lease in the bucket, which
// changes with offers; the lock of the session guards it.
type lease struct {
	s    *Session
	key  string
	rev  uint64
	lost chan struct{}
	once sync.Once
	over sync.Once
}

// Lost implements swarms.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

func (l *lease) lose() { l.over.Do(func() { close(l.lost) }) }

// Release implements swarms.Lease. It removes the lease at its revision, so it never removes the
// lease of another session.
func (l *lease) Release(ctx context.Context) error {
	var err error
	l.once.Do(func() {
		s := l.s
		s.mu.Lock()
		mine, rev := s.held[l.key] == l, l.rev
		s.mu.Unlock()
		if !mine { // it was lost
			return
		}
		err = s.c.conn.Retry(ctx, "release lease "+l.key, func(ctx context.Context) error {
			_, err := s.c.removeLease(ctx, l.key, rev)
			if !natsconn.IsWrongRevision(err) {
				return err
			}
			m, err := s.c.conn.LastOnce(ctx, leaseStream, leaseSubject(l.key))
			switch {
			case errors.Is(err, jobs.ErrNotFound):
				return nil
			case err != nil:
				return err
			case natsconn.IsTombstone(m.Header) || readLease(m.Data).session != s.id:
				// an earlier try got through, or somebody has taken it
				return nil
			}
			rev = m.Seq // it was offered to somebody meanwhile
			return nats.ErrTimeout
		})
		s.mu.Lock()
		delete(s.held, l.key)
		s.mu.Unlock()
		s.hurry() // so that the session may take it again
	})
	return err
}

// Leases lists who holds each lease, by its key. The last holder of a lease whose session has ended
// is not listed.
func (sw *Swarms) Leases(ctx context.Context) (map[string]string, error) {
	t := newLeaseTable()
	err := sw.conn.Values(ctx, "list leases", wire.LeaseBucket, func(key string, m *natsconn.Message) {
		t.change(leaseChange{key: key, seq: m.Seq, value: m.Data}, time.Time{})
	})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for key, l := range t.leases {
		if _, alive := t.sessions[l.session]; l.holder != "" && (l.session == "" || alive) {
			all[key] = l.holder
		}
	}
	return all, nil
}

func isSession(key string) bool { return strings.HasPrefix(key, sessionPrefix) }
