package natsq_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// limited opens a queue whose tenant "default" may have one job at a time, and the bucket of the
// accounts.
func limited(t *testing.T, lease time.Duration) (*server.Server, *natsq.Conn, jetstream.KeyValue) {
	t.Helper()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Leased(t, s, lease, natsq.Connect)
	one := 1
	if err := c.Control.LimitTenant(t.Context(), jobs.DefaultTenant, jobs.Limits{Concurrency: &one}); err != nil {
		t.Fatal(err)
	}
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	kv, err := js.KeyValue(t.Context(), "EXO_TENANTS")
	if err != nil {
		t.Fatal(err)
	}
	return s, c, kv
}

// TestSlotOfTheDead: a slot of a worker that shows no life is free after a lease, and not before.
func TestSlotOfTheDead(t *testing.T) {
	t.Parallel()
	s, c, kv := limited(t, time.Second)
	began := time.Now()
	if _, err := kv.PutString(t.Context(), "cpu.default",
		`{"v":1,"holders":{"dead":{"slots":1,"beat":7}},"tokens":0}`); err != nil {
		t.Fatal(err)
	}
	var at time.Time
	work(t, jobstest.Leased(t, s, time.Second, natsq.Connect),
		natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { at = time.Now(); return nil, nil },
		}})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("a", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "a"); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
	if at.Sub(began) < time.Second {
		t.Errorf("the slot was taken %v after a sign of life", at.Sub(began))
	}
}

// TestSlotOfTheSick: a worker that is not healthy keeps no slot.
func TestSlotOfTheSick(t *testing.T) {
	t.Parallel()
	s, c, _ := limited(t, time.Second)
	var sick atomic.Bool
	hung, release := make(chan struct{}), make(chan struct{})
	work(t, jobstest.Leased(t, s, time.Second, natsq.Connect), natsq.WorkerOptions{
		Name:    "sick",
		Healthy: healthUnless(&sick),
		Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			close(hung)
			<-release
			return nil, nil
		}},
	})
	defer close(release)
	if err := c.Queue.Submit(t.Context(), jobstest.Job("a", "k")); err != nil {
		t.Fatal(err)
	}
	<-hung
	sick.Store(true)
	work(t, jobstest.Leased(t, s, time.Second, natsq.Connect),
		natsq.WorkerOptions{Name: "well", Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return nil, nil },
		}})
	if r := jobstest.Await(t, c.Results, "a"); r.Worker != "well" {
		t.Errorf("%+v", r)
	}
}

// TestSlotLost: a worker that another worker took for dead cancels its job, which is done later,
// and takes part again.
func TestSlotLost(t *testing.T) {
	t.Parallel()
	s, c, kv := limited(t, time.Second)
	runs := make(chan error, 100)
	began := make(chan struct{}, 100)
	var calls atomic.Int64
	work(t, jobstest.Leased(t, s, time.Second, natsq.Connect),
		natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
			"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				if calls.Add(1) > 1 {
					return nil, nil
				}
				began <- struct{}{}
				<-ctx.Done()
				runs <- context.Cause(ctx)
				return nil, context.Cause(ctx)
			},
		}})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("a", "k")); err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := kv.PutString(t.Context(), "cpu.default", `{"v":1,"tokens":0}`); err != nil {
		t.Fatal(err)
	}
	if err := <-runs; err == nil || !strings.Contains(err.Error(), "the tenant's slot was lost") {
		t.Errorf("%v", err)
	}
	if r := jobstest.Await(t, c.Results, "a"); r.Status != jobs.Done || r.Attempts < 2 {
		t.Errorf("%+v", r)
	}
}

// TestSlotsReturned: what a worker does not use is on the account again, while it lives and when it
// has ended, and records that are no account or no limits harm nobody.
func TestSlotsReturned(t *testing.T) {
	t.Parallel()
	s, c, kv := limited(t, 15*time.Second)
	if _, err := kv.PutString(t.Context(), "cpu.default", `[]`); err != nil {
		t.Fatal(err)
	}
	w := work(t, jobstest.Leased(t, s, 15*time.Second, natsq.Connect),
		natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return nil, nil },
		}})
	free := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		watch, err := kv.Watch(ctx, "cpu.default")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = watch.Stop() }()
		for {
			select {
			case u := <-watch.Updates():
				var a struct {
					V       int            `json:"v"`
					Holders map[string]any `json:"holders"`
				}
				if u != nil && json.Unmarshal(u.Value(), &a) == nil && a.V == 1 && len(a.Holders) == 0 {
					return
				}
			case <-ctx.Done():
				t.Fatal("slots are held by a worker without jobs")
			}
		}
	}
	for _, id := range []string{"a", "b"} {
		if err := c.Queue.Submit(t.Context(), jobstest.Job(id, "k")); err != nil {
			t.Fatal(err)
		}
		if r := jobstest.Await(t, c.Results, id); r.Status != jobs.Done || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
	}
	free()
	w.Stop()
	free()
}
