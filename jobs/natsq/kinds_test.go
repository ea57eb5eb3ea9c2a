package natsq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// announce keeps an agent with these kinds in the registry until the test ends.
func announce(t *testing.T, c *natsq.Conn, name string, kinds ...string) {
	t.Helper()
	a, err := c.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{Name: name, Pool: jobs.PoolCPU, Kinds: kinds, State: "serving", Started: time.Now()}
	}, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestKindsApart: workers of one pool that serve different kinds take no jobs of each other, and a
// job of a kind that nobody serves stays queued until a worker of that kind starts.
func TestKindsApart(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	var wrong atomic.Int32
	only := func(kind string) map[string]jobs.Handler {
		return map[string]jobs.Handler{kind: func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
			if j.Kind != kind {
				wrong.Add(1)
			}
			return kind, nil
		}}
	}
	for _, kind := range []string{"red", "blue"} {
		work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{Name: kind, Handlers: only(kind)})
		announce(t, c, kind, kind)
	}
	for i := range 20 {
		for _, kind := range []string{"red", "blue", "green"} {
			if err := c.Queue.Submit(t.Context(), jobstest.Job(fmt.Sprint(kind, i), kind)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 20 {
		for _, kind := range []string{"red", "blue"} {
			if r := jobstest.Await(t, c.Results, fmt.Sprint(kind, i)); r.Status != jobs.Done || r.Worker != kind {
				t.Errorf("job %s%d: %s by worker %q, %v; want done by %s", kind, i, r.Status, r.Worker, r.Error, kind)
			}
		}
	}
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d jobs came to a handler of another kind", n)
	}
	j, err := c.Queue.Locate(t.Context(), "green0")
	if err != nil || j.State != queue.StateQueued || !strings.Contains(j.Note, "no agent of kind green") ||
		!strings.Contains(j.Note, "blue, red") {
		t.Errorf("job green0 is %q with note %q, %v; want queued, and the kinds that there are", j.State, j.Note, err)
	}
	st, err := c.Queue.Stats(t.Context(), jobs.PoolCPU)
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range st.Sources {
		if src.Kind == "green" && (src.Waiting != 20 || src.Agents != 0) || src.Kind == "red" && src.Agents != 1 {
			t.Errorf("source %+v: want 20 waiting of green without an agent, and one agent of red", src)
		}
	}
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{Name: "green", Handlers: only("green")})
	for i := range 20 {
		if r := jobstest.Await(t, c.Results, fmt.Sprint("green", i)); r.Status != jobs.Done || r.Worker != "green" {
			t.Errorf("job green%d: %s by %q, want done by green", i, r.Status, r.Worker)
		}
	}
	n := 0
	if err := c.Letters.List(t.Context(), jobs.DeadFilter{},
		func(jobs.DeadLetter) bool { n++; return true }); err != nil || n != 0 {
		t.Errorf("%d dead letters, %v; want none", n, err)
	}
}

// TestRunningJob: a job at hand is shown with its worker, attempt, beginning and progress, alone
// and in the list, and is among the results when it is over.
func TestRunningJob(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	begun, release := make(chan struct{}), make(chan struct{})
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{
		Name: "w", Concurrency: 1,
		Handlers: map[string]jobs.Handler{
			"k": func(_ context.Context, _ jobs.Job, progress func(any)) (any, error) {
				progress(map[string]int{"rows": 7})
				close(begun)
				<-release
				return nil, nil
			},
		},
	})
	announce(t, c, "w", "k")
	for _, id := range []string{"a", "b"} {
		if err := c.Queue.Submit(t.Context(), jobstest.Job(id, "k")); err != nil {
			t.Fatal(err)
		}
		if id == "a" {
			<-begun
		}
	}
	check := func(j queue.ListedJob) {
		t.Helper()
		r := j.Running
		if j.State != queue.StateRunning || r == nil || r.Worker != "w" || r.Attempt != 1 ||
			time.Since(r.Since) > time.Minute || string(r.Progress) != `{"rows":7}` {
			data, _ := json.Marshal(j)
			t.Errorf("job a is shown as %s; want running by w, attempt 1, with its progress", data)
		}
	}
	j, err := c.Queue.Locate(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	check(j)
	states := map[string]queue.JobState{}
	if err := c.Queue.List(t.Context(), jobs.PoolCPU, func(j queue.ListedJob) bool {
		if states[j.ID] = j.State; j.ID == "a" {
			check(j)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if states["a"] != queue.StateRunning || states["b"] != queue.StateQueued || len(states) != 2 {
		t.Errorf("the list says %v; want a running and b queued", states)
	}
	close(release)
	jobstest.Await(t, c.Results, "a")
	var ids []string
	if err := c.Results.List(t.Context(), "", func(r jobs.Result) bool {
		ids = append(ids, r.JobID)
		return false
	}); err != nil || len(ids) != 1 {
		t.Errorf("results: %v, %v; want the newest alone", ids, err)
	}
}

// TestBeside: two workers of one agent have slots of their own, and what both run is shown.
func TestBeside(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	var begun sync.WaitGroup
	begun.Add(2)
	release := make(chan struct{})
	kind := func(name string) natsq.WorkerOptions {
		return natsq.WorkerOptions{Name: "w", Concurrency: 1, Handlers: map[string]jobs.Handler{
			name: func(context.Context, jobs.Job, func(any)) (any, error) {
				begun.Done()
				<-release
				return name, nil
			},
		}}
	}
	first := work(t, jobstest.Open(t, s, natsq.Connect), kind("short"))
	beside := kind("long")
	beside.Pool, beside.Logger = jobs.PoolCPU, jobstest.Quiet
	jobstest.Work(t, first.Beside, beside)
	announce(t, c, "w", "short", "long")
	for _, kind := range []string{"long", "short"} {
		if err := c.Queue.Submit(t.Context(), jobstest.Job("of-"+kind, kind)); err != nil {
			t.Fatal(err)
		}
	}
	begun.Wait() // one slot for both would never let the second one begin
	running, err := c.Queue.Running(t.Context(), jobs.PoolCPU, "")
	if err != nil || len(running) != 2 || running[0].Worker != "w" || running[1].Worker != "w" {
		t.Errorf("what runs is %+v, %v; want both jobs of w", running, err)
	}
	close(release)
	for _, kind := range []string{"long", "short"} {
		if r := jobstest.Await(t, c.Results, "of-"+kind); r.Status != jobs.Done {
			t.Errorf("job of-%s is %s, want done", kind, r.Status)
		}
	}
}

// TestPoolGPU: a job for a pool that no agent serves waits, and the list of jobs says why.
func TestPoolGPU(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	conn := jobstest.Open(t, s, natsq.Connect)
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c := jobstest.Open(t, s, gateway.Connect)
	j := jobstest.Job("g", "nobodys")
	j.Pool = jobs.PoolGPU
	id, err := c.Submit(t.Context(), j)
	if err != nil {
		t.Fatalf("submit to pool gpu: %v", err)
	}
	if l, err := c.Locate(t.Context(), id); err != nil || !strings.Contains(l.Note, "pool gpu has no agent") {
		t.Errorf("the job has the note %q, error %v; want that the pool has no agent", l.Note, err)
	}
}
