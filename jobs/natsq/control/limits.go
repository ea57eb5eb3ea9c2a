// Package control stores what operators tell the workers of a pool: which kinds are paused, and the
// limits of tenants. It applies the limits of submissions, holds a worker to the limits of running
// jobs (Limiter), and renews the leases of its jobs (Keeper). Audit stores who did what: an intent
// before each action of an operator, and its outcome after it.
//
// A limit of queued jobs is approximate. Each connection counts its own submissions, and asks the
// server for the number of jobs once per second at most, so several submitters together can exceed
// it by what they submit in a second (RFC 0009).
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Control reads and writes pauses and limits. Its methods may be called from several goroutines.
type Control struct {
	conn    *natsconn.Conn
	tenants sync.Map // pool and tenant: *submitted
	refused atomic.Pointer[func(p jobs.Pool, tenant string)]
}

// New returns the control that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn) *Control { return &Control{conn: c} }

// OnRefused makes fn the function that is called for each submission that is refused because of the
// limit of queued jobs. A later call replaces fn. fn must not wait.
func (ct *Control) OnRefused(fn func(p jobs.Pool, tenant string)) { ct.refused.Store(&fn) }

func (ct *Control) tenantRefused(p jobs.Pool, tenant string) {
	if fn := ct.refused.Load(); fn != nil {
		(*fn)(p, tenant)
	}
}

// tenantKey returns the key of the limits of a tenant in wire.ControlBucket. A key cannot contain
// '*'.
func tenantKey(tenant string) string {
	if tenant == jobs.EveryTenant {
		return "tenant"
	}
	return "tenant." + tenant
}

// ParseTenantKey is the inverse of tenantKey. ok is false for a key that is not of limits.
func ParseTenantKey(key string) (tenant string, ok bool) {
	if key == "tenant" {
		return jobs.EveryTenant, true
	}
	return strings.CutPrefix(key, "tenant.")
}

func checkTenant(tenant string) error {
	if tenant == jobs.EveryTenant {
		return nil
	}
	return jobs.CheckID("tenant", tenant)
}

// LimitTenant sets the limits in l for a tenant, or for jobs.EveryTenant, and leaves its other
// limits as they are. Workers learn of it at once, and connections that submit within a second.
// Running jobs continue, and count.
func (ct *Control) LimitTenant(ctx context.Context, tenant string, l jobs.Limits) error {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	l.Version = jobs.Version
	if err := l.Validate(); err != nil {
		return fmt.Errorf("limit tenant %s: %w", tenant, err)
	}
	what := "limit tenant " + tenant
	for {
		before, revision, err := ct.limitsOf(ctx, tenant)
		if err != nil && jobs.AsError(err).Code == jobs.CodeInvalid { // a record that is not valid is replaced
			before, err = jobs.Limits{}, nil
		}
		if err != nil {
			return err
		}
		data, err := json.Marshal(l.Or(before))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		err = ct.conn.InBucket(ctx, what, wire.ControlBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.Update(ctx, tenantKey(tenant), data, revision)
			return err
		})
		if !natsconn.IsWrongRevision(err) { // otherwise another process has changed it
			return err
		}
	}
}

// UnlimitTenant removes the limits of a tenant, which then has the limits of jobs.EveryTenant. It
// also removes the limits of jobs.EveryTenant itself. It fails with jobs.ErrNotFound if there are
// none.
func (ct *Control) UnlimitTenant(ctx context.Context, tenant string) error {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	what := "unlimit tenant " + tenant
	_, err := ct.conn.Key(ctx, wire.ControlBucket, tenantKey(tenant))
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return fmt.Errorf("%s: it has no limits of its own: %w", what, jobs.ErrNotFound)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return ct.conn.InBucket(ctx, what, wire.ControlBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		return kv.Purge(ctx, tenantKey(tenant))
	})
}

// Tenants returns the limits that are set: first the limits of jobs.EveryTenant, then the tenants
// in the order of their names. A record that is not valid has TenantLimits.Error.
func (ct *Control) Tenants(ctx context.Context) ([]jobs.TenantLimits, error) {
	var all []jobs.TenantLimits
	err := ct.conn.Values(ctx, "list the limits of tenants", wire.ControlBucket, func(key string, m *natsconn.Message) {
		tenant, ok := ParseTenantKey(key)
		if !ok {
			return
		}
		t := jobs.TenantLimits{Tenant: tenant}
		var err error
		if t.Limits, err = schema.ParseLimits(m.Data); err != nil {
			t.Error = err.Error()
		}
		all = append(all, t)
	})
	return all, err
}

// limitsOf reads the limits of one tenant from the leader, with their revision. It returns no
// limits and no error if none are set.
func (ct *Control) limitsOf(ctx context.Context, tenant string) (l jobs.Limits, revision uint64, err error) {
	m, err := ct.conn.Last(ctx, "KV_"+wire.ControlBucket, "$KV."+wire.ControlBucket+"."+tenantKey(tenant))
	if errors.Is(err, jobs.ErrNotFound) {
		return l, 0, nil
	}
	if err != nil {
		return l, 0, err
	}
	if m.Header.Get("KV-Operation") != "" { // removed
		return l, m.Seq, nil
	}
	if l, err = schema.ParseLimits(m.Data); err != nil {
		err = fmt.Errorf("the limits of tenant %s: %w", tenant, err)
	}
	return l, m.Seq, err
}

// submitted is the state of a connection for the queue of one pool and tenant: the limit and the
// number of queued jobs. It reads both again when they are old, and counts its own submissions in
// between.
type submitted struct {
	turn   chan struct{} // guards the rest; not a mutex, because a caller that waits has a context
	limit  int           // 0 is none
	rate   float64
	known  time.Time     // when the limit was read
	queued int           // jobs in the queue, at least
	asked  time.Time     // when they were counted
	took   time.Duration // and how long that took
}

const (
	// limitAge is how old the limit may be, and the number of jobs, which others change too.
	limitAge = time.Second
	// countRest is the pause before a full queue is counted again, which bounds the load of a
	// submitter that does not wait. The pause is also at least ten times the time of the count,
	// which is proportional to the number of jobs.
	countRest = 100 * time.Millisecond
)

// Admit fails with jobs.ErrFull if a tenant of the jobs would have more jobs in its queue than its
// limit allows; jobs.RetryAfter returns when to try again. It counts the jobs as submitted.
func (ct *Control) Admit(ctx context.Context, batch ...jobs.Job) error {
	type queue struct {
		pool   jobs.Pool
		tenant string
	}
	add := map[queue]int{}
	for _, j := range batch {
		s := wire.SourceOf(j)
		if s.Valid() { // otherwise the submission refuses it with a better error
			add[queue{s.Pool, s.Tenant}]++
		}
	}
	for in, n := range add {
		v, ok := ct.tenants.Load(in)
		if !ok {
			v, _ = ct.tenants.LoadOrStore(in, &submitted{turn: make(chan struct{}, 1)})
		}
		if err := v.(*submitted).admit(ctx, ct, in.pool, in.tenant, n); err != nil {
			if errors.Is(err, jobs.ErrFull) {
				ct.tenantRefused(in.pool, in.tenant)
			}
			return err
		}
	}
	return nil
}

func (s *submitted) admit(ctx context.Context, c *Control, p jobs.Pool, tenant string, n int) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("count the jobs of tenant %s: %w", tenant, context.Cause(ctx))
	}
	if s.known.IsZero() || time.Since(s.known) > limitAge {
		if err := s.read(ctx, c, tenant); err != nil {
			return err
		}
	}
	if s.limit == 0 {
		return nil
	}
	if n > s.limit {
		return fmt.Errorf("submit %d jobs: tenant %s may have %d in the queue of pool %s: submit fewer at a time: %w",
			n, tenant, s.limit, p, jobs.ErrFull)
	}
	age := time.Since(s.asked)
	if s.asked.IsZero() || age > max(limitAge, 10*s.took) || s.queued+n > s.limit && age > max(countRest, 10*s.took) {
		began := time.Now()
		queued, err := c.countQueued(ctx, p, tenant)
		if err != nil {
			return err
		}
		s.queued, s.asked, s.took = queued, time.Now(), time.Since(began)
	}
	if over := s.queued + n - s.limit; over > 0 {
		after := time.Second
		if s.rate > 0 {
			after = time.Duration(math.Min(60, math.Max(0.1, float64(over)/s.rate)) * float64(time.Second))
		}
		return jobs.Later(fmt.Errorf("tenant %s has %d jobs in the queue of pool %s and may have %d: %w: try again "+
			"in %v", tenant, s.queued, p, s.limit, jobs.ErrFull, after), after)
	}
	s.queued += n
	return nil
}

// read reads the limits. While no leader of the bucket answers, the known limits stay, so that a
// submission waits for the leader of its own stream only.
func (s *submitted) read(ctx context.Context, c *Control, tenant string) error {
	try := ctx
	if !s.known.IsZero() {
		var cancel context.CancelFunc
		try, cancel = context.WithTimeout(ctx, natsconn.ShortTry)
		defer cancel()
	}
	l, _, err := c.limitsOf(try, tenant)
	var every jobs.Limits
	if err == nil {
		every, _, err = c.limitsOf(try, jobs.EveryTenant)
	}
	switch {
	case err == nil, jobs.AsError(err).Code == jobs.CodeInvalid: // a record that is not valid limits nothing
		q := wire.QuotaOf(l.Or(every))
		s.limit, s.rate = q.Queued, q.Rate
	case s.known.IsZero() || try.Err() == nil || ctx.Err() != nil:
		return err
	}
	s.known = time.Now()
	return nil
}

// countQueued counts the jobs of a tenant in the queue of a pool, as the leader has them. It does
// not use the counts of consumers, which drift (RFC 0007).
func (ct *Control) countQueued(ctx context.Context, p jobs.Pool, tenant string) (n int, err error) {
	levels, err := ct.conn.JobLevels(ctx, p, natsconn.LevelsAge)
	if err != nil {
		return 0, err
	}
	for _, l := range append([]jobs.Level{""}, levels...) {
		err := ct.conn.AtLevel(ctx, p, l, "count the jobs of tenant "+tenant, func(ctx context.Context) error {
			s, err := ct.conn.JS.Stream(ctx, wire.Source{Pool: p, Level: l}.Stream())
			if err != nil {
				return err
			}
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(wire.AnyJob(p, l, tenant, "*")))
			if err != nil {
				return err
			}
			n += len(info.State.Subjects) // a job is one message on its own subject
			return nil
		})
		if err != nil && (l == "" || !errors.Is(err, jobs.ErrNotFound) && !errors.Is(err, jobs.ErrUnavailable)) {
			return 0, err
		}
	}
	return n, nil
}
