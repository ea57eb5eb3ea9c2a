package control

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Reasons for which a tenant waits, for Options.Refused: all its slots are in use by all workers
// together, or its rate allows no job now.
const (
	ReasonConcurrency = "concurrency"
	ReasonRate        = "rate"
)

// LimiterOptions are what a limiter needs of its worker.
type LimiterOptions struct {
	Pool jobs.Pool
	// Quota returns what a tenant may use now. It must not wait.
	Quota func(tenant string) wire.Quota
	// Heartbeats keeps the leases of the worker's jobs. It is a *Keeper.
	Heartbeats Heartbeats
	// Freed is called when more jobs of a tenant may begin. It must not wait, or call the limiter.
	Freed func()
	// HasJobs asks the server whether a source has jobs. When it has none, the worker must take
	// note and call Open for it only after news.
	HasJobs func(ctx context.Context, s wire.Source) (bool, error)
	// Refused is called once each time that a tenant begins to wait, with the reason.
	Refused func(tenant, reason string)
	Log     *slog.Logger
}

// Heartbeats are the leases of the jobs that the worker has.
type Heartbeats interface {
	Unhealthy() bool
	Lose(m *nats.Msg, cause error)
}

// Limiter keeps slots and tokens of tenants for one worker. A job of a tenant with limits begins
// with a slot and a token of the tenant's record on the server. One goroutine gets them and gives
// them back, so a tenant at its limit delays no other tenant: its sources are just not open.
//
// The record of a tenant never shows fewer slots for this worker than the worker uses: a slot is
// added here after it is written there, and removed here before. The methods may be called from
// several goroutines, and none but Close waits for the server.
type Limiter struct {
	LimiterOptions
	conn *natsconn.Conn
	id   string // of this worker in the records

	mu       sync.Mutex
	tenants  map[string]*tenant
	tenantOf map[*nats.Msg]string // the tenants of the jobs that the worker has
	clock    serverClock

	wake  chan struct{}
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// tenant is what the worker has of one tenant. Durations are on the scale of serverClock.elapsed.
type tenant struct {
	running           int                 // jobs at hand, with limits or without, and those being fetched
	spare, lowSpare   int                 // slots without a job, and the fewest since the last tick
	tokens, lowTokens int                 // tokens without a job, and the fewest since the last tick
	wanted            map[wire.Source]int // ready sources without a slot or token, and the jobs that they may have
	lookFirst         bool                // the last grant was not used, so ask for jobs before the next
	waiting           bool                // the last demand was refused
	record            wire.QuotaRecord
	revision          uint64
	stale             bool          // the record must be read before it is written
	unsure            bool          // the last write has no answer
	granted           int           // slots that the record shows for this worker, at least
	renewed           time.Duration // when the slots were last written
	checked           time.Duration // when the holders were last read
	sightings         map[string]sighting
}

// sighting is the heartbeat counter of a holder of slots, and when it was first seen at that value.
type sighting struct {
	beat uint64
	at   time.Duration
}

// grantTick is the period of the loop. What is not used for one to two ticks is given back.
const grantTick = 100 * time.Millisecond

// recordKey returns the key of the record of a tenant in wire.TenantBucket. Each pool has its own
// record.
func recordKey(p jobs.Pool, tenant string) string { return string(p) + "." + tenant }

// StartLimiter returns a limiter that follows the records of a pool until Close. ctx bounds the
// start only.
func StartLimiter(ctx context.Context, c *natsconn.Conn, o LimiterOptions) (*Limiter, error) {
	l := newLimiter(c, o)
	// Records may have been written long ago, so the first stamp is the time of an answer.
	err := c.Retry(ctx, "read the clock of the server", func(ctx context.Context) error {
		s, err := c.JS.Stream(ctx, "KV_"+wire.TenantBucket)
		if err == nil {
			l.clock.ahead = time.Until(s.CachedInfo().TimeStamp)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.ended.Go(func() { c.FollowBucket(run, wire.TenantBucket, make(chan struct{}), l.changed, o.Log) })
	l.ended.Go(func() { l.loop(run) })
	return l, nil
}

// newLimiter returns a limiter whose loop does not run.
func newLimiter(c *natsconn.Conn, o LimiterOptions) *Limiter {
	return &Limiter{
		LimiterOptions: o, conn: c, id: natsconn.NewID(), tenants: map[string]*tenant{},
		tenantOf: map[*nats.Msg]string{},
		clock:    serverClock{start: time.Now()}, wake: make(chan struct{}, 1), stop: func() {},
	}
}

// Close gives all slots and tokens back and ends the loop. If the server does not answer within 5
// s, the slots are free when the lease of the worker ends.
func (l *Limiter) Close() {
	l.stop()
	l.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for name, t := range l.all() {
		l.mu.Lock()
		d := wire.Demand{ReturnTokens: t.tokens}
		t.spare, t.tokens, t.running = 0, 0, 0
		has := t.granted > 0 || d.ReturnTokens > 0
		l.mu.Unlock()
		if has {
			if _, err := l.write(ctx, name, t, d); err != nil {
				l.Log.Warn("slots are not given back; they are free when the lease ends", "tenant", name, "error", err)
			}
		}
	}
}

// all returns the tenants that the limiter knows.
func (l *Limiter) all() map[string]*tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.tenants)
}

// tenant returns the state of a tenant, which is new when the limiter does not know the tenant. It
// must be called with mu held.
func (l *Limiter) tenant(name string) *tenant {
	t := l.tenants[name]
	if t == nil {
		t = &tenant{stale: true, lookFirst: true, wanted: map[wire.Source]int{}}
		l.tenants[name] = t
	}
	return t
}

// wakeLoop makes the loop check all tenants now.
func (l *Limiter) wakeLoop() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// free returns how many jobs may begin now, at most n.
func (t *tenant) free(q wire.Quota, n int) int {
	if q.Concurrency > 0 {
		if t.record.Slots() > q.Concurrency { // the limit was lowered
			return 0
		}
		n = min(n, t.spare)
	}
	if q.Rate > 0 {
		n = min(n, t.tokens)
	}
	return n
}

// Open reports whether jobs of a source may be fetched now. If not, the limiter tries to get slots
// and tokens for n jobs, and calls Freed when it has some.
func (l *Limiter) Open(s wire.Source, n int) bool {
	q := l.Quota(s.Tenant)
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
	l.wakeLoop()
	return false
}

// Reserve takes slots and tokens for at most n jobs and returns for how many. The caller then
// fetches that number of jobs and calls Began.
func (l *Limiter) Reserve(s wire.Source, n int) int {
	q := l.Quota(s.Tenant)
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
		t.lowTokens = min(t.lowTokens, t.tokens)
	}
	return n
}

// Began ends a reservation of n jobs with the jobs that were fetched. The slots and tokens of the
// other jobs are free again.
func (l *Limiter) Began(s wire.Source, n int, msgs []*nats.Msg) {
	q := l.Quota(s.Tenant)
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
		t.lookFirst = false
	}
	for _, m := range msgs {
		l.tenantOf[m] = s.Tenant
	}
}

// End frees the slot of a job. For a job that has none, or has ended, it does nothing. The slot of
// a job that the record does not show any more is not free.
func (l *Limiter) End(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := l.tenantOf[m]
	if !ok {
		return
	}
	delete(l.tenantOf, m)
	t := l.tenants[name]
	t.running--
	if l.Quota(name).Concurrency > 0 && t.running+t.spare < t.granted {
		t.spare++
		l.Freed()
	}
}

// changed learns a record that any worker wrote.
func (l *Limiter) changed(u jetstream.KeyValueEntry) {
	name, ok := cutPool(l.Pool, u.Key())
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock.observe(u.Created())
	l.learn(name, l.tenant(name), u.Value(), u.Revision())
	if len(l.tenants[name].wanted) > 0 {
		l.wakeLoop()
	}
}

// cutPool returns the tenant of a key of the bucket, if the record is of the pool.
func cutPool(p jobs.Pool, key string) (tenant string, ok bool) {
	prefix := recordKey(p, "")
	if len(key) <= len(prefix) || key[:len(prefix)] != prefix {
		return "", false
	}
	return key[len(prefix):], true
}

// learn takes over a record unless it is older than the known one. If it shows fewer slots than the
// worker has, the slots are lost. It must be called with mu held.
func (l *Limiter) learn(name string, t *tenant, data []byte, revision uint64) {
	if revision <= t.revision {
		return
	}
	record, err := wire.ParseQuotaRecord(data)
	if err != nil {
		l.Log.Error("the record of a tenant is not valid and is made again", "tenant", name, "error", err)
	}
	t.record, t.revision = record, revision
	if t.granted > record.Holders[l.id].Slots {
		l.lose(name, t)
	}
}

// lose ends the jobs of a tenant, because other workers may have their slots by now. It must be
// called with mu held.
func (l *Limiter) lose(name string, t *tenant) {
	l.Log.Warn("slots of a tenant were lost", "tenant", name, "jobs", t.running)
	t.granted, t.spare = 0, 0
	for m, of := range l.tenantOf {
		if of == name {
			l.Heartbeats.Lose(m, fmt.Errorf("tenant %s: %w", name, ErrSlotLost))
		}
	}
}

// Running returns the number of jobs at hand by tenant. A tenant that had jobs before is there with
// 0.
func (l *Limiter) Running() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int, len(l.tenants))
	for name := range l.tenants {
		all[name] = 0
	}
	for _, name := range l.tenantOf {
		all[name]++
	}
	return all
}
