package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// limiter holds one worker to the limits of tenants. Jobs of a tenant with limits are taken with
// slots and tokens of its account, which one goroutine gets and gives back, so that a tenant at its
// limit holds nobody up: it is not ready.
//
// What the account says that a worker has is never less than what it uses: slots are added here
// after they are written there, and removed here before.
type limiter struct {
	c     *Conn
	id    string
	pool  jobs.Pool
	held  *holder
	quota func(tenant string) quota.Quota
	poke  func() // the loop of the worker may find more
	// there says whether a source has jobs; when not, the worker is told.
	there func(ctx context.Context, s wire.Source) (bool, error)
	// refused is told once of each time that a tenant has to wait, and why.
	refused func(tenant, reason string)
	log     *slog.Logger

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
	wanted           map[wire.Source]int // sources that are ready, and how many jobs would be taken
	doubt            bool                // the last grant was not used, so look before the next
	waits            bool                // what was wanted last was not there

	acc      quota.Record
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
	l.id, l.base, l.wake = natsconn.NewID(), time.Now(), make(chan struct{}, 1)
	l.tenants, l.of = map[string]*tenant{}, map[*nats.Msg]string{}
	// The account's stamps are old at first, so the clock starts by the server's own.
	err := l.c.Retry(ctx, "read the clock of the server", func(ctx context.Context) error {
		s, err := l.c.JS.Stream(ctx, "KV_"+wire.TenantBucket)
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
	l.ended.Go(func() { l.c.FollowBucket(run, wire.TenantBucket, make(chan struct{}), l.changed, l.log) })
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
		d := quota.Demand{ReturnTokens: t.tokens}
		t.spare, t.tokens, t.running = 0, 0, 0
		has := t.mine > 0 || d.ReturnTokens > 0
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
		t = &tenant{stale: true, doubt: true, wanted: map[wire.Source]int{}}
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
func (t *tenant) free(q quota.Quota, n int) int {
	if q.Concurrency > 0 {
		if t.acc.Slots() > q.Concurrency { // the limit was lowered
			return 0
		}
		n = min(n, t.spare)
	}
	if q.Rate > 0 {
		n = min(n, t.tokens)
	}
	return n
}

// open says whether jobs of a source may be taken now. If not, n of them are wanted and the worker
// is poked when there may be.
func (l *limiter) open(s wire.Source, n int) bool {
	q := l.quota(s.Tenant)
	if !q.Limited() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.Tenant)
	if t.free(q, 1) > 0 {
		return true
	}
	t.wanted[s] = n
	l.nudge()
	return false
}

// reserve takes slots and tokens for up to n jobs, fewer or none when there are not as many. began
// must follow.
func (l *limiter) reserve(s wire.Source, n int) int {
	q := l.quota(s.Tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.Tenant)
	n = t.free(q, n)
	t.running += n
	if q.Concurrency > 0 {
		t.spare -= n
		t.lowSpare = min(t.lowSpare, t.spare)
	}
	if q.Rate > 0 {
		t.tokens -= n
		t.lowToken = min(t.lowToken, t.tokens)
	}
	return n
}

// began says what came of a reservation of n.
func (l *limiter) began(s wire.Source, n int, msgs []*nats.Msg) {
	q := l.quota(s.Tenant)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenant(s.Tenant)
	unused := n - len(msgs)
	t.running -= unused
	if q.Concurrency > 0 {
		t.spare += unused
	}
	if q.Rate > 0 {
		t.tokens += unused
	}
	if len(msgs) > 0 {
		t.doubt = false
	}
	for _, m := range msgs {
		l.of[m] = s.Tenant
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
	if l.quota(name).Concurrency > 0 && t.running+t.spare < t.mine {
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
	acc, err := quota.ParseRecord(data)
	if err != nil {
		l.log.Error("the account of a tenant is not valid and is made anew", "tenant", name, "error", err)
	}
	t.acc, t.revision = acc, revision
	if t.mine > acc.Holders[l.id].Slots {
		l.lose(name, t)
	}
}

// lose ends the jobs of a tenant whose slots another worker may have by now. It must be called with
// mu held.
func (l *limiter) lose(name string, t *tenant) {
	l.log.Warn("slots of a tenant were lost", "tenant", name, "jobs", t.running)
	t.mine, t.spare = 0, 0
	for m, of := range l.of {
		if of == name {
			l.held.lose(m, fmt.Errorf("tenant %s: %w", name, errSlotLost))
		}
	}
}
