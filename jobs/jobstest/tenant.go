package jobstest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

func ptr[T any](v T) *T { return &v }

func limit(t *testing.T, c Client, tenant string, l jobs.Limits) {
	t.Helper()
	if err := c.LimitTenant(within(t), tenant, l); err != nil {
		t.Fatal(err)
	}
}

// crowd is a handler that counts the jobs of each tenant that run together.
type crowd struct {
	mu        sync.Mutex
	now, most map[string]int
	times     []time.Time
}

func newCrowd() *crowd { return &crowd{now: map[string]int{}, most: map[string]int{}} }

func (c *crowd) enter(tenant string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[tenant] += n
	c.most[tenant] = max(c.most[tenant], c.now[tenant])
	for range max(n, 0) {
		c.times = append(c.times, time.Now())
	}
}

// pause makes a job last for a moment, so that jobs run together if nothing prevents it.
func pause(ctx context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}

func (c *crowd) handle(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
	c.enter(j.Tenant, 1)
	defer c.enter(j.Tenant, -1)
	pause(ctx)
	return nil, nil
}

func (c *crowd) batch(ctx context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
	for _, j := range batch {
		c.enter(j.Tenant, 1)
		defer c.enter(j.Tenant, -1)
	}
	pause(ctx)
	return make([]jobs.Outcome, len(batch)), nil
}

func (c *crowd) together(tenant string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[tenant]
}

// testConcurrency: a limit bounds the jobs of a tenant that run together, on two workers, alone and
// in batches. Jobs of other tenants continue, and all jobs are done.
func testConcurrency(t *testing.T, q Queue) {
	c := q.Connect(t)
	limit(t, c, jobs.EveryTenant, jobs.Limits{Concurrency: ptr(2)})
	limit(t, c, "free", jobs.Limits{Concurrency: ptr(0)})
	limit(t, c, "three", jobs.Limits{Concurrency: ptr(3)})
	ran := newCrowd()
	w := Workload{
		Handlers: map[string]jobs.Handler{"a": ran.handle}, Batches: map[string]jobs.BatchHandler{"b": ran.batch},
		MaxBatch: 16, Concurrency: 8,
	}
	defer q.Start(t, q.Connect(t), w)()
	defer q.Start(t, q.Connect(t), w)()
	var all []jobs.Job
	for _, tenant := range []string{"two", "three", "free"} {
		all = append(all, bulk(t, c, 60, func(i int, j *jobs.Job) {
			if j.Tenant = tenant; i%3 == 0 {
				j.Kind = "b"
			}
		})...)
	}
	for _, j := range all {
		if r := result(t, c, j); r.Status != jobs.Done || r.Attempts != 1 {
			t.Fatalf("%+v", r)
		}
	}
	for tenant, most := range map[string]int{"two": 2, "three": 3} {
		if n := ran.together(tenant); n > most || n < 1 {
			t.Errorf("%d jobs of tenant %s ran together, %d may", n, tenant, most)
		}
	}
}

// testConcurrencyHeld: while a tenant is at its limit, other tenants are served. Below the limit it
// is served again.
func testConcurrencyHeld(t *testing.T, q Queue) {
	c := q.Connect(t)
	limit(t, c, "one", jobs.Limits{Concurrency: ptr(1)})
	open := make(chan struct{})
	started := make(chan string, 10)
	defer q.Start(t, q.Connect(t), Workload{Concurrency: 4, Handlers: map[string]jobs.Handler{
		"a": func(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
			started <- j.ID
			if j.Tenant == "one" {
				select {
				case <-open:
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
			return nil, nil
		},
	}})()
	held := bulk(t, c, 3, func(_ int, j *jobs.Job) { j.Tenant = "one"; j.Lane = jobs.High })
	next := func() string {
		t.Helper()
		select {
		case id := <-started:
			return id
		case <-within(t).Done():
			t.Fatal("no job began")
			return ""
		}
	}
	next()
	others := bulk(t, c, 5, func(_ int, j *jobs.Job) { j.Tenant = "others" })
	for _, j := range others {
		result(t, c, j)
		if id := next(); id == held[1].ID || id == held[2].ID {
			t.Fatal("a second job of the tenant began")
		}
	}
	// A limit that is lifted is lifted for what waits.
	if err := c.UnlimitTenant(within(t), "one"); err != nil {
		t.Fatal(err)
	}
	next()
	next()
	close(open)
	for _, j := range held {
		result(t, c, j)
	}
}

// testRate: the jobs of a tenant begin no faster than its rate, at all workers together. All jobs
// are done.
func testRate(t *testing.T, q Queue) {
	const rate, burst, n = 50.0, 5, 40
	c := q.Connect(t)
	limit(t, c, "slow", jobs.Limits{Rate: ptr(rate), Burst: ptr(burst)})
	r := newCrowd()
	w := Workload{Handlers: map[string]jobs.Handler{"a": r.handle}, Concurrency: 8}
	defer q.Start(t, q.Connect(t), w)()
	defer q.Start(t, q.Connect(t), w)()
	begin := time.Now()
	for _, j := range bulk(t, c, n, func(_ int, j *jobs.Job) { j.Tenant = "slow" }) {
		if r := result(t, c, j); r.Status != jobs.Done {
			t.Fatalf("%+v", r)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, at := range r.times {
		// The clock of the queue may run by a little other than ours.
		if least := time.Duration(float64(i+1-burst) / rate * 0.98 * float64(time.Second)); at.Sub(begin) < least {
			t.Fatalf("job %d began after %v, at %v a second with a burst of %d not before %v", i+1, at.Sub(begin), rate,
				burst, least)
		}
	}
}

// testQueued: a tenant that has as many jobs in the queue as it may is refused, alone and in
// batches, and others are not; when some are done it has room.
func testQueued(t *testing.T, q Queue) {
	c := q.Connect(t)
	limit(t, c, "small", jobs.Limits{Queued: ptr(5)})
	small := func(_ int, j *jobs.Job) { j.Tenant = "small" }
	all := bulk(t, c, 3, small)
	two, one := []jobs.Job{job("a", 1), job("a", 2), job("a", 3)}, job("a", 4)
	for i := range two {
		small(i, &two[i])
	}
	small(0, &one)
	if err := c.SubmitBatch(within(t), two); !errors.Is(err, jobs.ErrFull) || jobs.RetryAfter(err) <= 0 ||
		!strings.Contains(err.Error(), "tenant small has 3 jobs in the queue of pool cpu and may have 5") {
		t.Fatalf("3 jobs and 3 where 5 may be: %v", err)
	}
	if err := c.SubmitBatch(within(t), two[:2]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Submit(within(t), one); !errors.Is(err, jobs.ErrFull) {
			t.Fatalf("a sixth job: %v", err)
		}
	}
	// It is so for a connection that has not submitted before.
	if err := q.Connect(t).Submit(within(t), one); !errors.Is(err, jobs.ErrFull) {
		t.Fatalf("a sixth job on another connection: %v", err)
	}
	other := job("a", 5)
	submit(t, c, other)
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": r.handle})()
	for _, j := range append(all, two[0], two[1], other) {
		result(t, c, j)
	}
	ctx := within(t)
	for {
		err := c.Submit(ctx, one)
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrFull) || ctx.Err() != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(jobs.RetryAfter(err)):
		case <-ctx.Done():
		}
	}
	result(t, c, one)
}

// testWeight: where two tenants always have jobs, they get shares by weight.
func testWeight(t *testing.T, q Queue) {
	c := q.Connect(t)
	limit(t, c, "heavy", jobs.Limits{Weight: ptr(4.0)})
	heavy := map[string]bool{}
	order := paused(t, q, c, func() []jobs.Job {
		all := bulk(t, c, 100, func(_ int, j *jobs.Job) { j.Tenant = "heavy"; heavy[j.ID] = true })
		return append(all, bulk(t, c, 100, func(_ int, j *jobs.Job) { j.Tenant = "light" })...)
	})
	n := 0
	for _, id := range order[:100] {
		if heavy[id] {
			n++
		}
	}
	if n < 75 || n > 85 {
		t.Errorf("of the first 100 jobs %d were of the tenant that gets 80", n)
	}
}

// testLimits: limits are set field by field, listed, refused and removed.
func testLimits(t *testing.T, q Queue) {
	c := q.Connect(t)
	limit(t, c, "b", jobs.Limits{Rate: ptr(2.5), Queued: ptr(7)})
	limit(t, c, "b", jobs.Limits{Concurrency: ptr(3), Queued: ptr(0)})
	limit(t, c, jobs.EveryTenant, jobs.Limits{Weight: ptr(0.5)})
	all, err := c.Tenants(within(t))
	if err != nil || len(all) != 2 || all[0].Tenant != jobs.EveryTenant || *all[0].Weight != 0.5 ||
		all[1].Tenant != "b" {
		t.Fatalf("%+v, %v", all, err)
	}
	if b := all[1]; *b.Rate != 2.5 || *b.Concurrency != 3 || *b.Queued != 0 || b.Weight != nil || b.Burst != nil ||
		b.Error != "" {
		t.Errorf("%+v", b)
	}
	for want, l := range map[string]jobs.Limits{
		"weight 0: use 0.01 to 1000":              {Weight: ptr(0.0)},
		"rate -1: use 0.001 to 1000000":           {Rate: ptr(-1.0)},
		"burst -1: use 1 to 1000000":              {Burst: ptr(-1)},
		"concurrency 10001: use 1 to 10000":       {Concurrency: ptr(10001)},
		"queued -3: use 1 to 100000, or 0 for no": {Queued: ptr(-3)},
	} {
		if err := c.LimitTenant(within(t), "b", l); jobs.AsError(err).Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := c.LimitTenant(within(t), "a b", jobs.Limits{}); err == nil {
		t.Error("limits of a tenant that cannot be")
	}
	for _, tenant := range []string{"b", jobs.EveryTenant} {
		if err := c.UnlimitTenant(within(t), tenant); err != nil {
			t.Fatal(err)
		}
		if err := c.UnlimitTenant(within(t), tenant); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("removed twice: %v", err)
		}
	}
	limit(t, c, "b", jobs.Limits{Queued: ptr(1)})
	if all, err = c.Tenants(within(t)); err != nil || len(all) != 1 || all[0].Rate != nil {
		t.Fatalf("%+v, %v", all, err)
	}
}
