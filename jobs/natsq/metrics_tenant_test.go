package natsq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
)

// gathered is the value of a metric, by its labels in the order of their names; 0 when it is not
// there.
func gathered(t *testing.T, r *prometheus.Registry, name string, labels ...string) (v float64, ok bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if strings.Join(have, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// TestTenantMetrics: what a tenant may have, has, and was refused.
func TestTenantMetrics(t *testing.T) {
	t.Parallel()
	c, ctx := connected(t)
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	weight, one, two := 2.5, 1, 2
	if err := c.Control.LimitTenant(ctx, "t", jobs.Limits{
		Weight: &weight, Concurrency: &one,
		Queued: &two,
	}); err != nil {
		t.Fatal(err)
	}
	// of a tenant without limits: they wait when the worker begins to count
	for i, p := range []string{"u0", "u1", "u2"} {
		j := plain(p)
		j.Kind, j.Tenant = fmt.Sprint("none", i), "u"
		if err := c.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Control.Pause(ctx, jobs.PoolCPU, "none0"); err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}, 2), make(chan struct{})
	w, err := c.Work(ctx, WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Metrics: m, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				begun <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil, context.Cause(ctx)
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for i := range 3 {
		j := plain(fmt.Sprint("t", i))
		j.Tenant = "t"
		if err := c.Queue.Submit(ctx, j); i < 2 && err != nil || i == 2 && !errors.Is(err, jobs.ErrFull) {
			t.Fatalf("job %d: %v", i, err)
		}
	}
	<-begun
	check := func(want float64, name string, labels ...string) {
		t.Helper()
		for {
			got, _ := gathered(t, r, "exoswarm_tenant_"+name, labels...)
			if got == want {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s %v is %v, want %v", name, labels, got, want)
			}
		}
	}
	check(2.5, "weight", "cpu", "t")
	check(1, "weight", "cpu", "u")
	check(1, "limit", "concurrency", "cpu", "t")
	check(2, "limit", "queued", "cpu", "t")
	check(1, "running", "cpu", "t")
	check(3, "queued", "cpu", "u")
	check(1, "refused_total", "cpu", "queued", "t")
	check(1, "refused_total", "cpu", "concurrency", "t") // the second job waits, and is counted once
	if _, ok := gathered(t, r, "exoswarm_tenant_limit", "concurrency", "cpu", "u"); ok {
		t.Error("a limit that is not there is shown")
	}
	close(release)
	check(0, "running", "cpu", "t")
}

// TestTenantLabels: the label tenant has a bounded number of values.
func TestTenantLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for i := range 3 * maxTenants {
			m.tenantRefused(jobs.PoolCPU, fmt.Sprint("t", i), reasonQueued)
		}
		if n := len(m.tenants.refusals); n != maxTenants+1 {
			t.Errorf("round %d: %d values of the label, want %d", round, n, maxTenants+1)
		}
	}
	if got, _ := gathered(t, r, "exoswarm_tenant_refused_total", "cpu", "queued", otherTenants); got != 2*2*maxTenants {
		t.Errorf("%v refusals of other tenants", got)
	}
	if got, _ := gathered(t, r, "exoswarm_tenant_refused_total", "cpu", "queued", "t7"); got != 2 {
		t.Errorf("%v refusals of a tenant of its own label", got)
	}
}
