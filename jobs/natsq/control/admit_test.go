package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestTenantRecords: a record that is not valid limits nothing, is listed with its error, and is
// replaced; a tenant without limits has the limits of every tenant.
func TestTenantRecords(t *testing.T) {
	_, k := jobstest.InProcess(t, natsconn.Open)
	c := submitter{New(k)}
	ctx := t.Context()
	kv, err := c.conn.JS.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(ctx, tenantKey("a"), `{"v":1,"rate":-1}`); err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(ctx, jobs.PoolGPU, ""); err != nil {
		t.Fatal(err)
	}
	if all, err := c.Tenants(ctx); err != nil || len(all) != 1 || all[0].Tenant != "a" || all[0].Error == "" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, _, err := c.limitsOf(ctx, "a"); err == nil || !strings.Contains(err.Error(), "the limits of tenant a: ") ||
		jobs.AsError(err).Code != jobs.CodeInvalid {
		t.Error(err)
	}
	job := func(id, tenant string) jobs.Job {
		j := plain(id)
		j.Tenant = tenant
		return j
	}
	if err := c.Submit(ctx, job("a1", "a")); err != nil {
		t.Error(err)
	}
	if err := c.LimitTenant(ctx, "a", jobs.Limits{Queued: ptr(5)}); err != nil {
		t.Error(err)
	}
	if all, err := c.Tenants(ctx); err != nil || len(all) != 1 || all[0].Error != "" || *all[0].Queued != 5 ||
		all[0].Rate != nil {
		t.Errorf("%+v, %v", all, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.LimitTenant(ended, "a", jobs.Limits{Queued: ptr(6)}); !errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "limit tenant") {
		t.Errorf("limits that cannot be read are taken for none: %v", err)
	}
	if err := c.LimitTenant(ctx, jobs.EveryTenant, jobs.Limits{Queued: ptr(1)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(ctx, job("b1", "b")); err != nil {
		t.Error(err)
	}
	if err := c.Submit(ctx, job("b2", "b")); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("the limit of everybody: %v", err)
	}
	other := submitted{turn: make(chan struct{}, 1)}
	if err := other.read(ctx, c.Control, "a"); err != nil || other.limit != 5 || time.Since(other.known) > time.Minute {
		t.Errorf("its own limit: %+v, %v", &other, err)
	}
	if err := other.read(ended, c.Control, "a"); err == nil || other.limit != 5 {
		t.Errorf("a call that has ended: %+v, %v", &other, err)
	}
}

// TestTenantRoom: when the jobs of a tenant are counted anew, when its own submissions are enough,
// and how long a caller is told to wait.
func TestTenantRoom(t *testing.T) {
	_, k := jobstest.InProcess(t, natsconn.Open)
	c := submitter{New(k)}
	ctx := t.Context()
	if err := c.LimitTenant(ctx, "a", jobs.Limits{Queued: ptr(3), Rate: ptr(2.0)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a1", "a2"} {
		j := plain(id)
		j.Tenant = "a"
		if err := c.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	const ms = time.Millisecond
	for name, k := range map[string]struct {
		limit, queued, n int
		asked, took      time.Duration // ago; 0 is never
		rate             float64
		left             int // what counts as queued afterwards
		after            time.Duration
		want             string
	}{
		"never counted": {3, 0, 1, 0, 0, 0, 3, 0, ""},
		"never, too many": {3, 0, 2, 0, 0, 0, 2, time.Second, "has 2 jobs in the queue of pool cpu and may " +
			"have 3"},
		"just counted":            {3, 0, 1, 20 * ms, 0, 0, 1, 0, ""},
		"just counted, as many":   {3, 1, 2, 20 * ms, 0, 0, 3, 0, ""},
		"just counted, too many":  {3, 3, 1, 20 * ms, 0, 0, 3, time.Second, "has 3 jobs"},
		"a while ago":             {3, 1, 1, 500 * ms, 0, 0, 2, 0, ""},
		"a while ago, as many":    {3, 1, 2, 500 * ms, 0, 0, 3, 0, ""},
		"a while ago, too many":   {3, 3, 1, 500 * ms, 0, 0, 3, 0, ""},
		"counting is slow":        {3, 3, 1, 500 * ms, 100 * ms, 0, 3, time.Second, "has 3 jobs"},
		"long ago":                {5, 1, 1, 1500 * ms, 0, 0, 3, 0, ""},
		"long ago, but very slow": {5, 1, 1, 1500 * ms, 500 * ms, 0, 2, 0, ""},
		"a rate":                  {3, 5, 1, 20 * ms, 0, 2, 5, 1500 * ms, "try again in 1.5s"},
		"a fast rate":             {3, 3, 1, 20 * ms, 0, 100, 3, 100 * ms, "try again in 100ms"},
		"a slow rate":             {3, 3, 1, 20 * ms, 0, 0.001, 3, time.Minute, "try again in 1m0s"},
		"more than ever": {3, 0, 4, 20 * ms, 0, 0, 0, 0, "submit 4 jobs: tenant a may have 3 in the queue " +
			"of pool cpu: submit fewer at a time"},
		"as many as ever": {3, 0, 3, 20 * ms, 0, 0, 3, 0, ""},
		"no limit":        {0, 7, 9, 20 * ms, 0, 0, 7, 0, ""},
	} {
		s := submitted{
			turn: make(chan struct{}, 1), limit: k.limit, rate: k.rate, queued: k.queued, took: k.took,
			known: time.Now(),
		}
		if k.asked > 0 {
			s.asked = time.Now().Add(-k.asked)
		}
		err := s.admit(ctx, c.Control, jobs.PoolCPU, "a", k.n)
		if (err == nil) != (k.want == "") || err != nil &&
			(!errors.Is(err, jobs.ErrFull) || !strings.Contains(err.Error(), k.want)) ||
			jobs.RetryAfter(err) != k.after || s.queued != k.left || len(s.turn) != 0 {
			t.Errorf("%s: %v, wait %v, %d queued; want %q, %v, %d", name, err, jobs.RetryAfter(err), s.queued, k.want,
				k.after, k.left)
		}
	}
	old := submitted{turn: make(chan struct{}, 1), limit: 1, known: time.Now().Add(-2 * time.Second)}
	if err := old.admit(ctx, c.Control, jobs.PoolCPU, "a", 1); err != nil || old.limit != 3 || old.rate != 2 {
		t.Errorf("a limit that is old: %+v, %v", &old, err)
	}
	fresh := submitted{turn: make(chan struct{}, 1), limit: 9, known: time.Now().Add(-500 * ms)}
	if err := fresh.admit(ctx, c.Control, jobs.PoolCPU, "a", 1); err != nil || fresh.limit != 9 {
		t.Errorf("a limit that is not old: %+v, %v", &fresh, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	fresh.turn <- struct{}{}
	if err := fresh.admit(ended, c.Control, jobs.PoolCPU, "a", 1); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "count the jobs of tenant a") {
		t.Error(err)
	}
}

func ptr[T any](v T) *T { return &v }

// TestTenantLimits: limits are set part by part, listed in order, and taken away; what is no tenant
// or no limit is refused.
func TestTenantLimits(t *testing.T) {
	_, k := jobstest.InProcess(t, natsconn.Open)
	c := submitter{New(k)}
	ctx := t.Context()
	if err := errors.Join(c.LimitTenant(ctx, "b", jobs.Limits{Rate: ptr(2.0)}),
		c.LimitTenant(ctx, "a", jobs.Limits{Queued: ptr(3)}),
		c.LimitTenant(ctx, jobs.EveryTenant, jobs.Limits{Concurrency: ptr(4)}),
		c.LimitTenant(ctx, "b", jobs.Limits{Weight: ptr(5.0)})); err != nil {
		t.Fatal(err)
	}
	all, err := c.Tenants(ctx)
	if err != nil || len(all) != 3 || all[0].Tenant != jobs.EveryTenant || all[1].Tenant != "a" ||
		all[2].Tenant != "b" || *all[2].Rate != 2 || *all[2].Weight != 5 || *all[1].Queued != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, tenant := range []string{"", "a b", "a.b", ">"} {
		if c.LimitTenant(ctx, tenant, jobs.Limits{}) == nil || c.UnlimitTenant(ctx, tenant) == nil {
			t.Errorf("%q is a tenant", tenant)
		}
	}
	if c.LimitTenant(ctx, "a", jobs.Limits{Rate: ptr(-1.0)}) == nil {
		t.Error("a negative rate")
	}
	if err := c.UnlimitTenant(ctx, "none"); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := c.UnlimitTenant(ctx, "b"); err != nil {
		t.Error(err)
	}
	if err := c.UnlimitTenant(ctx, "b"); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := c.LimitTenant(ctx, "b", jobs.Limits{Queued: ptr(1)}); err != nil {
		t.Error(err)
	}
	if l, _, err := c.limitsOf(ctx, "b"); err != nil || l.Rate != nil || *l.Queued != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	// A tenant may have three jobs in the queue, by submissions of one and of several.
	job := func(id string) jobs.Job {
		j := plain(id)
		j.Tenant = "a"
		return j
	}
	if err := errors.Join(c.Submit(ctx, job("a1")), c.SubmitBatch(ctx, []jobs.Job{job("a2"), job("a3")})); err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(ctx, job("a4")); !errors.Is(err, jobs.ErrFull) || jobs.RetryAfter(err) != time.Second ||
		!strings.Contains(err.Error(), "has 3 jobs in the queue of pool cpu and may have 3") {
		t.Errorf("%v, %v", err, jobs.RetryAfter(err))
	}
	if err := c.SubmitBatch(ctx, []jobs.Job{job("b1"), job("b2"), job("b3"), job("b4")}); !errors.Is(err,
		jobs.ErrFull) || !strings.Contains(err.Error(), "submit fewer at a time") {
		t.Error(err)
	}
	if n, err := c.countQueued(ctx, jobs.PoolCPU, "a"); n != 3 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.countQueued(ctx, jobs.PoolCPU, "b"); n != 0 || err != nil {
		t.Error(n, err)
	}
	for tenant, key := range map[string]string{jobs.EveryTenant: "tenant", "a": "tenant.a"} {
		if got, ok := ParseTenantKey(key); tenantKey(tenant) != key || got != tenant || !ok {
			t.Errorf("%s: %s, %s, %v", tenant, tenantKey(tenant), got, ok)
		}
	}
	if _, ok := ParseTenantKey("pause.cpu"); ok {
		t.Error("a pause is a tenant")
	}
}
