package swarmlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// leaseTable is the bucket of leases as a session has last read it. It has no lock; a Session
// guards its table with its own. It decides nothing that must be right: every write of a lease is a
// compare-and-set.
type leaseTable struct {
	seq      uint64                  // the last message read
	read     time.Time               // when all of it was read
	leases   map[string]leaseState   // by key; removed ones too, which have a revision
	sessions map[string]sessionState // by key; those whose record exists
}

type leaseState struct {
	rev uint64
	// Both are empty for a free lease. A holder without a session renews the lease itself, as
	// programs before sessions did.
	session, holder string
	seen            time.Time // when this revision was first read, by the clock of this process
	next            string    // the session to which it is offered; empty if it is not offered
	ready           bool      // the agent of next has followed the shard
}

// sessionState is a session in the table. seen is when its revision was first read, by the clock of
// this process.
type sessionState struct {
	rev     uint64
	holder  string
	ttl     time.Duration
	seen    time.Time
	takes   bool
	asks    bool
	renewed time.Time // when this revision was written, by the server's clock
}

func newLeaseTable() leaseTable {
	return leaseTable{read: time.Now(), leases: map[string]leaseState{}, sessions: map[string]sessionState{}}
}

// rereadEvery is the period after which the whole bucket is read again, because leases of removed
// swarms leave no message.
const rereadEvery = 10 * time.Minute

// keep removes the keys that are not among all messages of the bucket.
func (t *leaseTable) keep(all []leaseChange) {
	t.read = time.Now()
	last := t.seq
	there := make(map[string]bool, len(all))
	for _, c := range all {
		there[c.key] = true
	}
	for key, l := range t.leases {
		if !there[key] && l.rev <= last { // a lease that was taken since may be missing in the answer
			delete(t.leases, key)
		}
	}
	for key := range t.sessions {
		if !there[key] {
			delete(t.sessions, key)
		}
	}
}

// put stores the state of a lease, unless a later one, or the same, is known. It sets the time at
// which the revision was first seen.
func (t *leaseTable) put(key string, l leaseState, now time.Time) {
	was, is := t.leases[key]
	switch {
	case l.rev < was.rev:
		return
	case is && l.rev == was.rev: // read again, which is no sign of life
		return
	}
	l.seen = now
	t.leases[key] = l
}

// free reports whether a try to take a lease makes sense: it has no holder, its session has ended,
// or an earlier program without sessions has not renewed it for ttl.
func (t *leaseTable) free(l leaseState, own string, ttl time.Duration, now time.Time) bool {
	switch {
	case l.holder == "" || l.session == own:
		return true
	case l.session == "":
		return now.Sub(l.seen) > ttl
	}
	_, alive := t.sessions[l.session]
	return !alive
}

// readLease decodes a lease. A value that is not a leaseRecord is the name of its holder, as
// programs before sessions wrote it.
func readLease(value []byte) leaseState {
	var r leaseRecord
	if json.Unmarshal(value, &r) != nil || !isSession(r.Session) {
		return leaseState{holder: string(value)}
	}
	return leaseState{session: r.Session, holder: r.Holder, next: r.Next, ready: r.Ready}
}

type leaseChange struct {
	key   string
	seq   uint64
	gone  bool
	value []byte
	at    time.Time // when it was stored, by the server's clock
}

// change applies a message of the bucket to the table, and reports whether a lease may have become
// free, or a session asks for one.
func (t *leaseTable) change(c leaseChange, now time.Time) (freed bool) {
	t.seq = max(t.seq, c.seq)
	if !isSession(c.key) {
		l := leaseState{}
		if !c.gone {
			l = readLease(c.value)
		}
		l.rev = c.seq
		t.put(c.key, l, now)
		return c.gone
	}
	var r sessionRecord
	if c.gone || json.Unmarshal(c.value, &r) != nil || r.TTL <= 0 {
		delete(t.sessions, c.key)
		return true
	}
	was := t.sessions[c.key]
	if was.rev == c.seq { // read again, which is no sign of life
		return false
	}
	t.sessions[c.key] = sessionState{
		rev: c.seq, holder: r.Holder, ttl: time.Duration(r.TTL) * time.Millisecond,
		seen: now, takes: r.Takes, asks: r.Asks, renewed: c.at,
	}
	return r.Asks && !was.asks
}

const readMost = 1024

// readLeases returns the messages of the bucket after a sequence number. The bucket keeps the last
// message of each key. A replica that is behind may answer, with a prefix of the leader's messages.
// With an error it returns the messages that came before.
func (sw *Swarms) readLeases(ctx context.Context, after uint64) (all []leaseChange, err error) {
	for {
		n := len(all)
		all, err = sw.readSomeLeases(ctx, after, all)
		if err != nil || len(all)-n < readMost {
			return all, err
		}
		after = all[len(all)-1].seq
	}
}

// readSomeLeases makes one request of at most readMost messages, and appends them to a slice.
func (sw *Swarms) readSomeLeases(ctx context.Context, after uint64, to []leaseChange) ([]leaseChange, error) {
	req, err := json.Marshal(map[string]any{"seq": after + 1, "next_by_subj": leaseSubject(">"), "batch": readMost})
	if err != nil {
		return to, err
	}
	sub, err := sw.conn.NC.SubscribeSync(sw.conn.NC.NewInbox())
	if err != nil {
		return to, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sw.conn.NC.PublishRequest("$JS.API.DIRECT.GET."+leaseStream, sub.Subject, req); err != nil {
		return to, err
	}
	prefix := leaseSubject("")
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return to, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end of the answer; no messages
			return to, nil
		case "503":
			return to, nats.ErrNoResponders
		default:
			return to, fmt.Errorf("read the bucket of leases: %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return to, fmt.Errorf("read the bucket of leases: %w", err)
		}
		key := strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), prefix)
		at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer)) // for people
		to = append(to, leaseChange{key: key, seq: seq, gone: natsconn.IsTombstone(m.Header), value: m.Data, at: at})
	}
}

// follow polls the bucket, and removes the records of sessions that are not renewed, until ctx ends
// or the session is lost.
func (s *Session) follow(ctx context.Context) {
	every := min(s.ttl/10, pollMost)
	next := time.NewTimer(every)
	defer next.Stop()
	good := time.Now()
	for {
		select {
		case <-next.C:
		case <-s.look:
		case <-s.lost:
			return
		case <-ctx.Done():
			return
		}
		try, cancel := context.WithTimeout(ctx, natsconn.LongTry)
		err := s.poll(try)
		cancel()
		next.Reset(s.pause(every))
		if err != nil {
			continue
		}
		now := time.Now()
		if gap := now.Sub(good); gap > 3*every { // the time without a read counts against no other session
			s.mu.Lock()
			s.table.forgive(gap)
			s.mu.Unlock()
		}
		good = now
		s.removeDead(ctx, now)
	}
}

// poll reads the changes since the last poll, and ends leases that other sessions have taken. Only
// one goroutine at a time may call it: OpenSession first, then follow.
func (s *Session) poll(ctx context.Context) error {
	after, again := s.table.seq, time.Since(s.table.read) > rereadEvery
	if again {
		after = 0
	}
	changes, err := s.c.readLeases(ctx, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := false
	if again && err == nil {
		s.table.keep(changes)
	}
	for _, c := range changes {
		freed = s.table.change(c, time.Now()) || freed
		if !isSession(c.key) {
			freed = s.concerns(c.key) || freed
		}
		// a change of the offer, which keeps the holder
		if h := s.held[c.key]; h != nil && c.seq > h.rev && s.table.leases[c.key].session == s.id {
			h.rev = c.seq
		} else if h != nil && c.seq > h.rev {
			level := slog.LevelWarn
			if c.gone { // its swarm was removed
				level = slog.LevelDebug
			}
			s.log.Log(ctx, level, "lease lost", "lease", c.key, "to", s.table.leases[c.key].holder)
			h.lose()
			delete(s.held, c.key)
		}
	}
	if freed {
		s.ring()
	}
	return err
}

func (t *leaseTable) forgive(gap time.Duration) {
	for id, o := range t.sessions {
		o.seen = o.seen.Add(gap)
		t.sessions[id] = o
	}
	for key, l := range t.leases {
		l.seen = l.seen.Add(gap)
		t.leases[key] = l
	}
}

// removeDead removes the records of sessions that were not renewed for their ttl. Of several
// sessions that do so, one succeeds, and the other sessions see a wrong revision.
func (s *Session) removeDead(ctx context.Context, now time.Time) {
	s.mu.Lock()
	late := map[string]sessionState{}
	for id, o := range s.table.sessions {
		if id != s.id && now.Sub(o.seen) > o.ttl {
			late[id] = o
		}
	}
	old := false
	for _, l := range s.table.leases {
		old = old || l.session == "" && l.holder != "" && now.Sub(l.seen) > s.ttl
	}
	if old { // leases of programs before sessions have no record to remove
		s.ring()
	}
	s.mu.Unlock()
	for id, o := range late {
		mark, err := markLost(o)
		if err == nil {
			try, cancel := context.WithTimeout(ctx, natsconn.LongTry)
			_, err = s.c.removeMarked(try, id, mark, o.rev)
			cancel()
		}
		if err == nil {
			s.log.Info("a session was not renewed, its leases are free", "session", id, "holder", o.holder, "ttl",
				o.ttl)
		}
		if err == nil || natsconn.IsWrongRevision(err) {
			s.hurry()
		}
		if err != nil && !natsconn.IsWrongRevision(err) && !errors.Is(err, context.Canceled) {
			s.log.Warn("removing the record of a session", "session", id, "holder", o.holder, "error",
				fmt.Errorf("%w: %w", jobs.ErrUnavailable, err))
		}
	}
}
