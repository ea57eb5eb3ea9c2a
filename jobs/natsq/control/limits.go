// Package control stores what operators tell the workers of a pool: which kinds are paused, and the
// limits of tenants. It applies the limits of submissions.
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
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Control reads and writes pauses and limits. Its methods may be called from several goroutines.
type Control struct {
	conn    *natsconn.Conn
	tenants sync.Map // pool and tenant: *submitted
	refused atomic.Pointer[func(p jobs.Pool, tenant string)]
}

// New returns the control that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn) *Control { return &Control{conn: c} }

// OnRefused has fn called for every submission that is refused because the tenant has as many jobs
// in the queue as it may. A later call replaces fn.
func (ct *Control) OnRefused(fn func(p jobs.Pool, tenant string)) { ct.refused.Store(&fn) }

func (ct *Control) tenantRefused(p jobs.Pool, tenant string) {
	if fn := ct.refused.Load(); fn != nil {
		(*fn)(p, tenant)
	}
}

// tenantKey is the key of a tenant's limits in controlBucket. '*' may not stand in a key.
func tenantKey(tenant string) string {
	if tenant == jobs.EveryTenant {
		return "tenant"
	}
	return "tenant." + tenant
}

// ParseTenantKey is the inverse of tenantKey; ok is false for a key of something else.
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

// LimitTenant sets the limits of a tenant, or of jobs.EveryTenant, that are in l, and leaves its
// others as they are. Workers hear of it at once, connections that submit within a second. What
// runs goes on, and counts.
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
		if !natsconn.IsWrongRevision(err) { // somebody else changed it: look again
			return err
		}
	}
}

// UnlimitTenant removes the limits of a tenant, which has those of jobs.EveryTenant from then on,
// or those of jobs.EveryTenant. jobs.ErrNotFound when it has none.
func (ct *Control) UnlimitTenant(ctx context.Context, tenant string) error {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	what := "unlimit tenant " + tenant
	err := ct.conn.InBucket(ctx, what, wire.ControlBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		if _, err := kv.Get(ctx, tenantKey(tenant)); err != nil {
			return err
		}
		return kv.Purge(ctx, tenantKey(tenant))
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("%s: it has no limits of its own: %w", what, jobs.ErrNotFound)
	}
	return err
}

// Tenants lists the limits that are set, those of jobs.EveryTenant first and then by name.
func (ct *Control) Tenants(ctx context.Context) ([]jobs.TenantLimits, error) {
	var all []jobs.TenantLimits
	err := ct.conn.Values(ctx, "list the limits of tenants", wire.ControlBucket, func(key string, m *natsconn.Message) {
		tenant, ok := ParseTenantKey(key)
		if !ok {
			return
		}
		t := jobs.TenantLimits{Tenant: tenant}
		var err error
		if t.Limits, err = quota.ParseLimits(m.Data); err != nil {
			t.Error = err.Error()
		}
		all = append(all, t)
	})
	return all, err
}

// limitsOf reads the limits set for one tenant, none when there are none, from the leader.
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
	if l, err = quota.ParseLimits(m.Data); err != nil {
		err = fmt.Errorf("the limits of tenant %s: %w", tenant, err)
	}
	return l, m.Seq, err
}

// submitted is what a connection knows of the room that a tenant has in a pool's queue. The limit
// and the number of jobs are asked for anew when they are old; between, its own submissions are
// counted.
type submitted struct {
	turn   chan struct{} // holds one while somebody uses the rest; not a mutex, because who waits has a context
	limit  int           // 0 is none
	rate   float64
	known  time.Time     // when the limit was read
	queued int           // jobs that are in the queue, at least
	asked  time.Time     // when they were counted
	took   time.Duration // and how long that took
}

const (
	// limitAge is how old the limit may be, and the number of jobs, which others change too.
	limitAge = time.Second
	// countRest is how soon a queue that is full is counted again: a submitter that does not wait
	// costs that much. It is also ten times as long as counting takes, which is in proportion to
	// the jobs.
	countRest = 100 * time.Millisecond
)

// Admit fails with jobs.ErrFull when one of the tenants of the jobs would have more in its queue
// than it may.
func (ct *Control) Admit(ctx context.Context, batch ...jobs.Job) error {
	type queue struct {
		pool   jobs.Pool
		tenant string
	}
	add := map[queue]int{}
	for _, j := range batch {
		s := wire.SourceOf(j)
		if s.Valid() { // else it is refused with a better sentence
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

// read asks for the limits. Those that are known stay while nobody answers: a submission that would
// find its own stream does not wait for the leader of this bucket too.
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
		q := quota.Of(l.Or(every))
		s.limit, s.rate = q.Queued, q.Rate
	case s.known.IsZero() || try.Err() == nil || ctx.Err() != nil:
		return err
	}
	s.known = time.Now()
	return nil
}

// countQueued counts the jobs of a tenant in a pool's queue, as the leader has them. The counts of
// consumers drift, see Worker.patience.
func (ct *Control) countQueued(ctx context.Context, p jobs.Pool, tenant string) (n int, err error) {
	err = ct.conn.Retry(ctx, "count the jobs of tenant "+tenant, func(ctx context.Context) error {
		s, err := ct.conn.JS.Stream(ctx, wire.JobStream(p))
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter("exo.job."+string(p)+".*.*."+tenant+".*"))
		if err != nil {
			return err
		}
		n = len(info.State.Subjects) // a job is one message on a subject of its own
		return nil
	})
	return n, err
}
