// Package jobstest holds every queue to the protocol of package jobs: one suite, run on each
// implementation. It also starts servers, connections and workers for tests (server.go).
package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Client is one connection to a queue, as the parts of the protocol.
type Client struct {
	JobQueue
	DeadLetterStore
	ResultStore
	SwarmStore
	ObjectStore
	AgentRegistry
	Control
	Scheduler
	// Conn is the connection itself, for Queue.Start. The suite does not use it.
	Conn any
}

// JobQueue submits jobs and follows them.
type JobQueue interface {
	Submit(ctx context.Context, j jobs.Job) error
	SubmitBatch(ctx context.Context, batch []jobs.Job) error
	Find(ctx context.Context, id string) (jobs.Job, error)
	Jobs(ctx context.Context, p jobs.Pool, fn func(jobs.Job) bool) error
	Missing(ctx context.Context, j jobs.Job) ([]string, error)
	Cancel(ctx context.Context, j jobs.Job, finish bool) error
	Withdraw(ctx context.Context, j jobs.Job) error
	Stats(ctx context.Context, p jobs.Pool) (jobs.QueueStats, error)
}

// DeadLetterStore keeps the jobs that failed for good.
type DeadLetterStore interface {
	List(ctx context.Context, f jobs.DeadFilter, fn func(jobs.DeadLetter) bool) error
	Redrive(ctx context.Context, d jobs.DeadLetter) error
	Purge(ctx context.Context, f jobs.DeadFilter) (uint64, error)
}

// SwarmStore keeps the records of swarms, the logs of their shards and the leases.
type SwarmStore interface {
	CreateSwarm(ctx context.Context, s swarms.Swarm) error
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
	ChangeSwarm(ctx context.Context, s swarms.Swarm, change func(*swarms.Swarm)) (swarms.Swarm, error)
	RemoveSwarm(ctx context.Context, s swarms.Swarm) error
	WatchSwarms(ctx context.Context, fn func(swarms.Change)) error
	Log(swarm string, shard int, d swarms.Direction) swarms.Log
	OpenSession(ctx context.Context, holder string, ttl time.Duration, log *slog.Logger) (swarms.Session, error)
}

// ObjectStore keeps the objects of jobs.
type ObjectStore interface {
	PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
	Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error)
	DeleteObject(ctx context.Context, name string, of jobs.Owner) error
}

// AgentRegistry lists the agents that are alive.
type AgentRegistry interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
}

// ResultStore keeps the results of jobs and carries their progress.
type ResultStore interface {
	Result(ctx context.Context, id string) (jobs.Result, error)
	Lookup(ctx context.Context, id string) (jobs.Result, error)
	Progress(id string, fn func(json.RawMessage)) (stop func(), err error)
}

// Control pauses kinds of jobs, and sets the limits of tenants.
type Control interface {
	Pause(ctx context.Context, p jobs.Pool, kind string) error
	Resume(ctx context.Context, p jobs.Pool, kind string) error
	LimitTenant(ctx context.Context, tenant string, l jobs.Limits) error
	UnlimitTenant(ctx context.Context, tenant string) error
	Tenants(ctx context.Context) ([]jobs.TenantLimits, error)
}

// Scheduler adds and removes schedules.
type Scheduler interface {
	AddSchedule(ctx context.Context, s jobs.Schedule) error
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string, on bool) error
	Schedules(ctx context.Context) ([]jobs.ScheduleState, error)
}

// Workload is what a worker does.
type Workload struct {
	Handlers    map[string]jobs.Handler
	Batches     map[string]jobs.BatchHandler // at most MaxBatch jobs together, which may wait Linger for each other
	MaxBatch    int
	Linger      time.Duration
	Concurrency int // 0: as the queue likes
}

// Queue makes clients of one queue that is empty at the start.
type Queue struct {
	// Connect makes a connection of its own.
	Connect func(t *testing.T) Client
	// Start starts a worker of the CPU pool on c; stop drains it.
	Start func(t *testing.T, c Client, w Workload) (stop func())
}

// Work starts a worker that does single jobs.
func (q Queue) Work(t *testing.T, c Client, handlers map[string]jobs.Handler) (stop func()) {
	t.Helper()
	return q.Start(t, c, Workload{Handlers: handlers})
}

// Run runs the suite. open makes a new queue for every test. The tests are parallel, because most
// of them wait.
func Run(t *testing.T, open func(t *testing.T) Queue) {
	for name, test := range map[string]func(*testing.T, Queue){
		"result":          testResult,
		"failure":         testFailure,
		"once":            testOnce,
		"retry":           testRetry,
		"panic":           testPanic,
		"unknown kind":    testUnknownKind,
		"finish early":    testFinish,
		"stop":            testStop,
		"drain":           testDrain,
		"many":            testMany,
		"log order":       testLogOrder,
		"log fence":       testLogFence,
		"log window":      testLogWindow,
		"log race":        testLogRace,
		"log gone":        testLogGone,
		"log trim":        testLogTrim,
		"lease":           testLease,
		"lease take over": testTakeOver,
		"swarms":          testSwarms,
		"objects":         testObjects,

		"lanes":            testLanes,
		"levels":           testLevels,
		"levels refused":   testLevelsRefused,
		"tenants":          testTenants,
		"bulk":             testBulk,
		"pause":            testPause,
		"delay":            testDelay,
		"deadline":         testDeadline,
		"cancel queued":    testCancelQueued,
		"cancel delayed":   testCancelDelayed,
		"withdraw":         testWithdraw,
		"dead letters":     testDeadLetters,
		"dead letter gone": testPurgeDead,
		"large spec":       testLargeSpec,
		"batches":          testBatches,
		"poison":           testPoison,
		"batch retry":      testBatchRetry,
		"result ttl":       testResultTTL,
		"stats":            testStats,
		"model":            testModel,

		"parents":           testParents,
		"parents together":  testParentsTogether,
		"parents refused":   testParentsRefused,
		"parents over":      testParentsOver,
		"parents fail":      testParentsFail,
		"parents withdrawn": testParentsWithdrawn,
		"parents redriven":  testParentsRedriven,
		"child cancelled":   testChildCancelled,
		"child late":        testChildLate,
		"graphs":            testGraphs,

		"limits":           testLimits,
		"weight":           testWeight,
		"concurrency":      testConcurrency,
		"concurrency held": testConcurrencyHeld,
		"queued":           testQueued,
		"rate":             testRate,

		"schedules":    testSchedules,
		"missed times": testMissed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// Quiet is a logger that says nothing.
var Quiet = slog.New(slog.DiscardHandler)

// within bounds every call and wait. Only failures take that long, so it is long enough for a busy
// machine.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var ids atomic.Int64

func job(kind string, spec any) jobs.Job {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return jobs.Job{
		Version: jobs.Version, ID: fmt.Sprintf("job-%d", ids.Add(1)), Pool: jobs.PoolCPU, Kind: kind,
		Spec: data, Submitted: time.Now(),
	}
}

func double(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
	var n int
	if err := json.Unmarshal(j.Spec, &n); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "not a number")
	}
	return 2 * n, nil
}

func submit(t *testing.T, c Client, j jobs.Job) {
	t.Helper()
	if err := c.Submit(within(t), j); err != nil {
		t.Fatal(err)
	}
}

func result(t *testing.T, c Client, j jobs.Job) jobs.Result {
	t.Helper()
	r, err := c.Result(within(t), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r.JobID != j.ID || r.Kind != j.Kind {
		t.Fatalf("result of another job: %+v", r)
	}
	return r
}

func testResult(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": double})()
	j := job("double", 21)
	submit(t, c, j)
	r := result(t, c, j)
	if r.Status != jobs.Done || string(r.Output) != "42" || r.Attempts != 1 || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	if err := c.Submit(within(t), j); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a job that is done was taken again: %v", err)
	}
}

func testFailure(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": double})()
	j := job("double", "x")
	submit(t, c, j)
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error == nil || r.Error.Code != jobs.CodeInvalid ||
		r.Error.Message != "not a number" {
		t.Fatalf("%+v", r)
	}
}

func testOnce(t *testing.T, q Queue) {
	c := q.Connect(t)
	j := job("double", 1)
	submit(t, c, j)
	if err := c.Submit(within(t), j); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("submitted twice: %v", err)
	}
	for _, bad := range []jobs.Job{
		{Version: jobs.Version + 1, ID: "a", Pool: jobs.PoolCPU, Spec: json.RawMessage("1")},
		{Version: jobs.Version, ID: "a.b", Pool: jobs.PoolCPU, Spec: json.RawMessage("1")},
		{Version: jobs.Version, ID: "a", Pool: "tpu", Spec: json.RawMessage("1")},
		{Version: jobs.Version, ID: "a", Pool: jobs.PoolCPU, Spec: json.RawMessage("{")},
	} {
		if err := c.Submit(within(t), bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

func testRetry(t *testing.T, q Queue) {
	c := q.Connect(t)
	var calls atomic.Int64
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"flaky": func(context.Context, jobs.Job, func(any)) (any,
		error,
	) {
		if calls.Add(1) < 2 {
			return nil, jobs.Retry(errors.New("not this time"))
		}
		return "done", nil
	}})()
	j := job("flaky", nil)
	submit(t, c, j)
	if r := result(t, c, j); r.Status != jobs.Done || r.Attempts != 2 || calls.Load() != 2 {
		t.Fatalf("%+v after %d calls", r, calls.Load())
	}
}

func testPanic(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"bad": func(context.Context, jobs.Job, func(any)) (any,
		error,
	) {
		panic("out of my mind")
	}, "double": double})()
	j := job("bad", nil)
	submit(t, c, j)
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeInternal {
		t.Fatalf("%+v", r)
	}
	j = job("double", 2) // the worker lives on
	submit(t, c, j)
	if r := result(t, c, j); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
}

// testUnknownKind: a job of a kind that no worker serves stays queued while others of its pool are
// done, and is done when a worker of its kind starts.
func testUnknownKind(t *testing.T, q Queue) {
	c := q.Connect(t)
	echo := func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return j.Spec, nil }
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"known": echo})()
	j, k := job("nonsense", nil), job("known", 1)
	submit(t, c, j)
	submit(t, c, k)
	if r := result(t, c, k); r.Status != jobs.Done {
		t.Fatalf("job of a served kind: %+v, want done", r)
	}
	if _, err := c.Lookup(within(t), j.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("job of an unserved kind has a result: %v", err)
	}
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"nonsense": echo})()
	if r := result(t, c, j); r.Status != jobs.Done {
		t.Fatalf("job whose kind is served now: %+v, want done", r)
	}
}

// waiter runs until it is cancelled and reports why; it says through progress that it has begun.
func waiter(ctx context.Context, _ jobs.Job, progress func(any)) (any, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		progress("running")
		select {
		case <-tick.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, jobs.ErrFinish) {
				return nil, cause
			}
			return "finished early", nil
		}
	}
}

// begun submits a waiter and returns when it runs.
func begun(t *testing.T, c Client) jobs.Job {
	t.Helper()
	j := job("wait", nil)
	running := make(chan struct{})
	var once sync.Once
	stop, err := c.Progress(j.ID, func(json.RawMessage) { once.Do(func() { close(running) }) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	submit(t, c, j)
	select {
	case <-running:
	case <-within(t).Done():
		t.Fatal("the job did not start")
	}
	return j
}

func testFinish(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": waiter})()
	j := begun(t, c)
	if err := c.Cancel(within(t), j, true); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Done || string(r.Output) != `"finished early"` {
		t.Fatalf("%+v", r)
	}
}

func testStop(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": waiter})()
	j := begun(t, c)
	if err := c.Cancel(within(t), j, false); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeCanceled {
		t.Fatalf("%+v", r)
	}
}

// testDrain: a job whose worker ends is continued by another worker.
func testDrain(t *testing.T, q Queue) {
	c := q.Connect(t)
	stop := q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": waiter})
	j := begun(t, c)
	stop()
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": func(context.Context, jobs.Job, func(any)) (any,
		error,
	) {
		return "second", nil
	}})()
	if r := result(t, c, j); r.Status != jobs.Done || string(r.Output) != `"second"` || r.Attempts != 2 {
		t.Fatalf("%+v", r)
	}
}

// testMany: two workers, every job done once.
func testMany(t *testing.T, q Queue) {
	c := q.Connect(t)
	var mu sync.Mutex
	done := map[string]int{}
	count := func(ctx context.Context, j jobs.Job, p func(any)) (any, error) {
		mu.Lock()
		done[j.ID]++
		mu.Unlock()
		return double(ctx, j, p)
	}
	for range 2 {
		defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": count})()
	}
	var all []jobs.Job
	for n := range 100 {
		j := job("double", n)
		submit(t, c, j)
		all = append(all, j)
	}
	for n, j := range all {
		if r := result(t, c, j); string(r.Output) != fmt.Sprint(2*n) {
			t.Fatalf("job %d: %+v", n, r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range done {
		if n != 1 {
			t.Errorf("job %s was done %d times", id, n)
		}
	}
}
