package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// limiter holds one worker to the limits of tenants. Jobs of a tenant with limits are taken with slots and tokens of its account, which
// one goroutine gets and gives back, so that a tenant at its limit holds nobody up: it is not ready.
//
// What the account says that a worker has is never less than what it uses: slots are added here after they are written there, and
// removed here before.
type limiter struct {
	c     *Conn
	id    string
	pool  jobs.Pool
	held  *holder
	quota func(tenant string) quota
	poke  func() // the loop of the worker may find more
	// there says whether a source has jobs; when not, the worker is told.
	there func(ctx context.Context, s source) (bool, error)
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*tenant
	of      map[*nats.Msg]string // tenants of the jobs that the worker has
	base    time.Time            // a time here
	ahead   time.Duration        // by which the server's clock is ahead of it, at least
	seen    time.Duration        // how long after base that was seen

	wake  chan struct{}
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// tenant is what a worker has of one.
type tenant struct {
	running          int // jobs at hand, whether limited or not, and those being asked for
	spare, lowSpare  int // slots without a job, and the fewest since the last tick
	tokens, lowToken int
	wanted           map[source]int // sources that are ready, and how many jobs would be taken
	doubt            bool           // the last grant was not used, so look before the next

	acc      account
	revision uint64
	stale    bool          // read the account before it is written
	unsure   bool          // whether the last write came through
	mine     int           // slots that the account has had of this worker
	beat     time.Duration // since limiter.base: when they were last written
	checked  time.Duration // when holders were last looked at
	others   map[string]sign
}

// sign is a holder's beat and when it was first seen, since limiter.base.
type sign struct {
	beat uint64
	at   time.Duration
}

var errSlotLost = errors.New("the tenant's slot was lost: the server was not reached in time")

const grantTick = 100 * time.Millisecond // what is not used for one to two of them is given back

func accountKey(p jobs.Pool, tenant string) string { return string(p) + "." + tenant }

// start follows the accounts until close.
func (l *limiter) start(ctx context.Context) error {
	l.id, l.base, l.wake = NewID(), time.Now(), make(chan struct{}, 1)
	l.tenants, l.of = map[string]*tenant{}, map[*nats.Msg]string{}
	// The account's stamps are old at first, so the clock starts by the server's own.
	err := l.c.retry(ctx, "read the clock of the server", func(ctx context.Context) error {
		s, err := l.c.js.Stream(ctx, "KV_"+tenantBucket)
		if err == nil {
			l.ahead = time.Until(s.CachedInfo().TimeStamp)
		}
		return err
	})
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.ended.Go(func() { l.c.follow(run, tenantBucket, make(chan struct{}), l.changed, l.log) })
	l.ended.Go(func() { l.loop(run) })
	return nil
}

// close gives everything back.
func (l *limiter) close() {
	l.stop()
	l.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for name, t := range l.all() {
		l.mu.Lock()
		d := demand{back: t.tokens}
		t.spare, t.tokens, t.running = 0, 0, 0
		has := t.mine > 0 || d.back > 0
		l.mu.Unlock()
		if has {
			if _, err := l.write(ctx, name, t, d); err != nil {
				l.log.Warn("slots are not given back; they are free when the lease ends", "tenant", name, "error", err)
			}
		}
	}
}

func (l *limiter) all() map[string]*tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]*tenant, len(l.tenants))
	for name, t := range l.tenants {
		all[name] = t
	}
	return all
}

// tenant must be called with mu held.
func (l *limiter) tenant(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		t = &tenant{stale: true, doubt: true, wanted: map[source]int{}}
		l.tenants[name] = t
	}
	return t
}

func (l *limiter) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// free is how many jobs may begin now, n or fewer.
func (t *tenant) free(q quota, n int) int {
	if q.concurrency > 0 {
		if t.acc.slots() > q.concurrency { // the limit was lowered
			return 0
		}
		n = min(n, t.spare)
	}
	if q.rate > 0 {
		n = min(n, t.tokens)
	}
	return n
}

// open says whether jobs of a source may be taken now. If not, n of them are wanted and the worker is poked when there may be.
func (l *limiter) open(s source, n int) bool {
	q := l.quota(s.tenant)
	if !q.held() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.tenant)
	if t.free(q, 1) > 0 {
		return true
	}
	t.wanted[s] = n
	l.nudge()
	return false
}

// reserve takes slots and tokens for up to n jobs, fewer or none when there are not as many. began must follow.
func (l *limiter) reserve(s source, n int) int {
	q := l.quota(s.tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.tenant)
	n = t.free(q, n)
	t.running += n
	if q.concurrency > 0 {
		t.spare -= n
		t.lowSpare = min(t.lowSpare, t.spare)
	}
	if q.rate > 0 {
		t.tokens -= n
		t.lowToken = min(t.lowToken, t.tokens)
	}
	return n
}

// began says what came of a reservation of n.
func (l *limiter) began(s source, n int, msgs []*nats.Msg) {
	q := l.quota(s.tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.tenant)
	unused := n - len(msgs)
	t.running -= unused
	if q.concurrency > 0 {
		t.spare += unused
	}
	if q.rate > 0 {
		t.tokens += unused
	}
	if len(msgs) > 0 {
		t.doubt = false
	}
	for _, m := range msgs {
		l.of[m] = s.tenant
	}
}

// end frees the slot of a job. For one that has none it does nothing.
func (l *limiter) end(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := l.of[m]
	if !ok {
		return
	}
	delete(l.of, m)
	t := l.tenants[name]
	t.running--
	if l.quota(name).concurrency > 0 && t.running+t.spare < t.mine {
		t.spare++
		l.poke()
	}
}

// now is the server's time, or a little before. It must be called with mu held.
func (l *limiter) now() time.Time {
	here := time.Since(l.base)
	return l.base.Round(0).Add(here + l.ahead - (here-l.seen)/drift)
}

// drift: two clocks may part by 1 in 5,000 (200 ppm), more than a quartz does.
const drift = 5000

// changed learns an account that somebody wrote.
func (l *limiter) changed(u jetstream.KeyValueEntry) {
	name, ok := cutPool(l.pool, u.Key())
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); u.Created().After(now) {
		l.ahead = u.Created().Sub(l.base.Round(0)) - time.Since(l.base)
		l.seen = time.Since(l.base)
	}
	l.learn(name, l.tenant(name), u.Value(), u.Revision())
	if len(l.tenants[name].wanted) > 0 {
		l.nudge()
	}
}

func cutPool(p jobs.Pool, key string) (tenant string, ok bool) {
	prefix := accountKey(p, "")
	if len(key) <= len(prefix) || key[:len(prefix)] != prefix {
		return "", false
	}
	return key[len(prefix):], true
}

// learn must be called with mu held.
func (l *limiter) learn(name string, t *tenant, data []byte, revision uint64) {
	if revision <= t.revision {
		return
	}
	var acc account
	if len(data) > 0 && json.Unmarshal(data, &acc) != nil {
		l.log.Error("the account of a tenant is not valid and is made anew", "tenant", name)
		acc = account{}
	}
	t.acc, t.revision = acc, revision
	if t.mine > acc.Holders[l.id].Slots {
		l.lose(name, t)
	}
}

// lose ends the jobs of a tenant whose slots another worker may have by now. It must be called with mu held.
func (l *limiter) lose(name string, t *tenant) {
	l.log.Warn("slots of a tenant were lost", "tenant", name, "jobs", t.running)
	t.mine, t.spare = 0, 0
	for m, of := range l.of {
		if of == name {
			l.held.lose(m, fmt.Errorf("tenant %s: %w", name, errSlotLost))
		}
	}
}

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
				case <-time.After(min(time.Second, l.c.ackWait/6)):
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

// serve gets what the worker wants of an account and gives back what it does not use. pause is how long until tokens may be there, 0 for
// no matter.
func (l *limiter) serve(ctx context.Context, name string, t *tenant, tick bool) (pause time.Duration, err error) {
	if l.held.ill() { // others get its slots when its beat has stood still for a lease
		return 0, nil
	}
	q := l.quota(name)
	l.mu.Lock()
	here := time.Since(l.base)
	var d demand
	write := false
	if tick {
		idle := min(t.lowSpare, t.spare)
		t.spare -= idle
		d.back = min(t.lowToken, t.tokens)
		if q.rate == 0 {
			d.back = t.tokens
		}
		t.tokens -= d.back
		t.lowSpare, t.lowToken = t.spare, t.tokens
		t.doubt = t.doubt || idle > 0 || d.back > 0
		write = idle > 0 || d.back > 0
	}
	switch {
	case q.concurrency == 0:
		t.spare = 0
		write = write || t.mine > 0
	case t.spare > 0 && t.acc.slots() > q.concurrency: // the limit was lowered
		t.spare = 0
		write = true
	case t.mine > 0 && here-t.beat > l.c.ackWait: // others may take them for those of a dead worker
		l.lose(name, t)
		write = true
	default:
		d.beat = t.mine > 0 && here-t.beat > l.c.ackWait/3
		write = write || d.beat || t.running+t.spare != t.mine
	}
	write = write || t.unsure
	var wanted []source
	for s, n := range t.wanted {
		wanted = append(wanted, s)
		if q.concurrency > 0 && t.spare == 0 {
			d.more = max(d.more, n)
		}
		if q.rate > 0 && t.tokens == 0 {
			d.take = max(d.take, n)
		}
	}
	if len(wanted) > 0 && d.more == 0 && d.take == 0 { // there is some by now
		clear(t.wanted)
		wanted = nil
		l.poke()
	}
	doubt := t.doubt
	l.mu.Unlock()
	if len(wanted) > 0 && doubt {
		if wanted, err = l.look(ctx, t, wanted); err != nil {
			return 0, err
		}
		if len(wanted) == 0 {
			d.more, d.take = 0, 0
		}
	}
	if d.more > 0 {
		if d.dead, err = l.check(ctx, name, t); err != nil {
			return 0, err
		}
	}
	if !write && d.more == 0 && d.take == 0 {
		return 0, nil
	}
	got, err := l.write(ctx, name, t, d)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if got {
		clear(t.wanted)
		l.poke()
	} else if d.take > 0 {
		if pause = t.acc.pause(q, l.now()); pause > 0 { // else it is slots that are missing
			pause = max(pause, time.Millisecond)
		}
	}
	return pause, nil
}

// look leaves of the sources those that have jobs.
func (l *limiter) look(ctx context.Context, t *tenant, wanted []source) (left []source, err error) {
	for _, s := range wanted {
		try, cancel := context.WithTimeout(ctx, l.c.ackWait/3)
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

// check lists the holders that have shown no life for a lease, as seen from here by looks at the leader, each less than half a lease after the
// one before: a time without the server counts for nobody.
func (l *limiter) check(ctx context.Context, name string, t *tenant) (dead []string, err error) {
	l.mu.Lock()
	due := time.Since(l.base)-t.checked > l.c.ackWait/6 && len(t.acc.Holders) > 0
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
	if here-t.checked > l.c.ackWait/2 {
		t.others = nil
	}
	t.checked = here
	others := map[string]sign{}
	for id, h := range t.acc.Holders {
		s, ok := t.others[id]
		if !ok || s.beat != h.Beat {
			s = sign{h.Beat, here}
		}
		if others[id] = s; id != l.id && here-s.at > l.c.ackWait {
			dead = append(dead, id)
		}
	}
	t.others = others
	return dead, nil
}

// read learns the account as the leader has it.
func (l *limiter) read(ctx context.Context, name string, t *tenant) error {
	try, cancel := context.WithTimeout(ctx, l.c.ackWait/3)
	defer cancel()
	m, err := l.c.last(try, "KV_"+tenantBucket, "$KV."+tenantBucket+"."+accountKey(l.pool, name))
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
	if t.acc = (account{}); t.mine > 0 {
		l.lose(name, t)
	}
	return nil
}

// write brings an account to what the worker has and wants; got says that it got some of that.
func (l *limiter) write(ctx context.Context, name string, t *tenant, d demand) (got bool, err error) {
	d.me = l.id
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
		if d.slots = 0; q.concurrency > 0 {
			d.slots = t.running + t.spare
		}
		next, slots, tokens, write := t.acc.apply(q, l.now(), d)
		revision, began := t.revision, time.Since(l.base)
		if !write {
			t.unsure = t.unsure && !stale
			t.mine = d.slots
			l.mu.Unlock()
			return false, nil
		}
		t.mine = min(t.mine, d.slots) // whether or not the answer comes
		l.mu.Unlock()
		data, err := json.Marshal(next)
		if err != nil {
			return false, err
		}
		try, cancel := context.WithTimeout(ctx, l.c.ackWait/3)
		ack, err := l.c.js.PublishMsg(try, &nats.Msg{Subject: "$KV." + tenantBucket + "." + accountKey(l.pool, name), Data: data},
			jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
		cancel()
		l.mu.Lock()
		if err != nil {
			t.stale = true
			if wrongRevision(err) {
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
		t.mine, t.beat, t.unsure = d.slots+slots, began, false
		t.spare += slots
		t.tokens += tokens
		l.mu.Unlock()
		return slots+tokens > 0, nil
	}
}
