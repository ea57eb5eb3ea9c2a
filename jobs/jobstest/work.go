package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// recorder is a handler that keeps the ids of the jobs in the order of their runs.
type recorder struct {
	mu  sync.Mutex
	ids []string
}

func (r *recorder) handle(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, j.ID)
	return nil, nil
}

func (r *recorder) order() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.ids...)
}

// paused runs fn while the pool is paused, then starts a worker that does one job at a time,
// resumes, and waits for the jobs that fn returned.
func paused(t *testing.T, q Queue, c Client, fn func() []jobs.Job) (order []string) {
	t.Helper()
	if err := c.Pause(within(t), jobs.PoolCPU, ""); err != nil {
		t.Fatal(err)
	}
	all := fn()
	var r recorder
	defer q.Start(t, q.Connect(t), Workload{
		Handlers:    map[string]jobs.Handler{"a": r.handle, "b": r.handle},
		Concurrency: 1,
	})()
	if err := c.Resume(within(t), jobs.PoolCPU, ""); err != nil {
		t.Fatal(err)
	}
	for _, j := range all {
		result(t, c, j)
	}
	return r.order()
}

func bulk(t *testing.T, c Client, n int, change func(i int, j *jobs.Job)) []jobs.Job {
	t.Helper()
	all := make([]jobs.Job, n)
	for i := range all {
		all[i] = job("a", i)
		change(i, &all[i])
	}
	if err := c.SubmitBatch(within(t), all); err != nil {
		t.Fatal(err)
	}
	return all
}

// testLanes: the urgent lane is served first, in the order of submission. The other lanes get a
// turn now and then.
func testLanes(t *testing.T, q Queue) {
	c := q.Connect(t)
	lane := map[string]jobs.Lane{}
	order := paused(t, q, c, func() (all []jobs.Job) {
		for _, l := range []jobs.Lane{jobs.Low, jobs.Normal, jobs.High} {
			some := bulk(t, c, 40, func(_ int, j *jobs.Job) { j.Lane = l; lane[j.ID] = l })
			all = append(all, some...)
		}
		return all
	})
	if len(order) != 120 {
		t.Fatalf("%d runs of 120 jobs", len(order))
	}
	var high, other int
	for _, id := range order[:45] {
		if lane[id] == jobs.High {
			high++
		} else {
			other++
		}
	}
	if high < 38 || other < 4 {
		t.Errorf("of the first 45 jobs %d were urgent, %d not", high, other)
	}
	for _, l := range jobs.Lanes() {
		before := ""
		for _, id := range order {
			if lane[id] == l && len(id) == len(before) && id < before {
				t.Errorf("lane %s: %s ran before %s, which was submitted first", l, before, id)
			}
			if lane[id] == l {
				before = id
			}
		}
	}
}

// testTenants: a tenant with a few jobs does not wait behind one with many, nor a kind behind
// another.
func testTenants(t *testing.T, q Queue) {
	c := q.Connect(t)
	rare := map[string]bool{}
	order := paused(t, q, c, func() []jobs.Job {
		many := bulk(t, c, 200, func(_ int, j *jobs.Job) { j.Tenant = "many" })
		few := bulk(t, c, 10, func(i int, j *jobs.Job) {
			j.Tenant = "few"
			if i%2 == 0 {
				j.Kind = "b"
			}
			rare[j.ID] = true
		})
		return append(many, few...)
	})
	last := 0
	for i, id := range order {
		if rare[id] {
			last = i
		}
	}
	if last > 30 {
		t.Errorf("the last of ten jobs of a tenant ran as number %d", last)
	}
}

func testBulk(t *testing.T, q Queue) {
	c := q.Connect(t)
	all := bulk(t, c, jobs.MaxBatch, func(_ int, j *jobs.Job) { j.Kind = "double" })
	// One that exists keeps all others out.
	more := []jobs.Job{job("double", 1), all[17], job("double", 2)}
	if err := c.SubmitBatch(within(t), more); !errors.Is(err, jobs.ErrExists) ||
		!strings.Contains(err.Error(), all[17].ID) {
		t.Fatalf("a batch with a job that is queued: %v", err)
	}
	if _, err := c.Find(within(t), more[0].ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("half a batch was stored: %v", err)
	}
	twice := job("double", 3)
	if err := c.SubmitBatch(within(t), []jobs.Job{twice, twice}); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a batch with a job twice: %v", err)
	}
	if err := c.SubmitBatch(within(t), make([]jobs.Job, jobs.MaxBatch+1)); err == nil {
		t.Fatal("a batch over the limit was taken")
	}
	stop := q.Start(t, q.Connect(t), Workload{Handlers: map[string]jobs.Handler{"double": double}, Concurrency: 32})
	defer stop()
	for i, j := range all {
		if r := result(t, c, j); string(r.Output) != fmt.Sprint(2*i) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	// What is over keeps them out too.
	if err := c.SubmitBatch(within(t), more); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a batch with a job that is done: %v", err)
	}
}

// testPause: a paused kind waits, at workers that started before and after the pause, while other
// kinds are served. A paused pool waits too.
func testPause(t *testing.T, q Queue) {
	c := q.Connect(t)
	var r recorder
	handlers := map[string]jobs.Handler{"a": r.handle, "b": r.handle}
	defer q.Work(t, q.Connect(t), handlers)()
	if err := c.Pause(within(t), jobs.PoolCPU, "a"); err != nil {
		t.Fatal(err)
	}
	if st, err := c.Stats(within(t), jobs.PoolCPU); err != nil || st.Paused {
		t.Fatalf("%+v, %v", st, err)
	}
	// The pause is known to every worker when it is known to one that starts after it.
	defer q.Work(t, q.Connect(t), handlers)()
	waits, goes := job("a", 1), job("b", 2)
	submit(t, c, waits)
	submit(t, c, goes)
	result(t, c, goes)
	if _, err := c.Lookup(within(t), waits.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Logf("the job of a paused kind was taken before the pause was known to the first worker: %v", err)
	}
	if err := c.Resume(within(t), jobs.PoolCPU, "a"); err != nil {
		t.Fatal(err)
	}
	result(t, c, waits)
	if err := c.Pause(within(t), "tpu", ""); err == nil {
		t.Error("a pool that does not exist was paused")
	}
}

func testDelay(t *testing.T, q Queue) {
	c := q.Connect(t)
	var began time.Time
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": func(context.Context, jobs.Job, func(any)) (any, error) {
		began = time.Now()
		return nil, nil
	}})()
	j := job("a", 1)
	j.NotBefore = time.Now().Add(1500 * time.Millisecond)
	submit(t, c, j)
	if err := c.Submit(within(t), j); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a delayed job was taken twice: %v", err)
	}
	if found, err := c.Find(within(t), j.ID); err != nil || found.ID != j.ID {
		t.Fatalf("%+v, %v", found, err)
	}
	r := result(t, c, j)
	if early := j.NotBefore.Sub(began); early > 0 {
		t.Errorf("began %v too early: %+v", early, r)
	}
}

func testDeadline(t *testing.T, q Queue) {
	c := q.Connect(t)
	late := job("wait", 1)
	late.Deadline = time.Now().Add(-time.Second)
	submit(t, c, late)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": waiter})()
	slow := job("wait", 2)
	slow.Deadline = time.Now().Add(time.Second)
	submit(t, c, slow)
	for _, j := range []jobs.Job{late, slow} {
		if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeDeadline {
			t.Errorf("%+v", r)
		}
	}
	noLetters(t, c)
}

func noLetters(t *testing.T, c Client) {
	t.Helper()
	if err := c.List(within(t), jobs.DeadFilter{},
		func(d jobs.DeadLetter) bool { t.Errorf("dead letter: %+v", d); return true }); err != nil {
		t.Fatal(err)
	}
}

// testCancelQueued: a job that no worker has received is over at once, without a worker.
func testCancelQueued(t *testing.T, q Queue) {
	c := q.Connect(t)
	j := job("a", 1)
	submit(t, c, j)
	if err := c.Cancel(within(t), j, false); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeCanceled {
		t.Fatalf("%+v", r)
	}
	if _, err := c.Find(within(t), j.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("it is still queued: %v", err)
	}
	if err := c.Submit(within(t), j); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a cancelled job was taken again: %v", err)
	}
	if err := c.Cancel(within(t), j, false); err != nil {
		t.Fatalf("a second cancellation: %v", err)
	}
	noLetters(t, c)
}

func testCancelDelayed(t *testing.T, q Queue) {
	c := q.Connect(t)
	j := job("a", 1)
	j.NotBefore = time.Now().Add(time.Hour)
	submit(t, c, j)
	if err := c.Cancel(within(t), j, false); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeCanceled {
		t.Fatalf("%+v", r)
	}
}

func testWithdraw(t *testing.T, q Queue) {
	c := q.Connect(t)
	j := job("double", 4)
	submit(t, c, j)
	if err := c.Withdraw(within(t), j); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lookup(within(t), j.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("a withdrawn job has a result: %v", err)
	}
	submit(t, c, j) // as if it had never been
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": double})()
	if r := result(t, c, j); string(r.Output) != "8" {
		t.Fatalf("%+v", r)
	}
}

// letters waits until there are n dead letters and returns them.
func letters(t *testing.T, c Client, f jobs.DeadFilter, n int) (all []jobs.DeadLetter) {
	t.Helper()
	ctx := within(t)
	for {
		all = nil
		if err := c.List(ctx, f, func(d jobs.DeadLetter) bool {
			all = append(all,
				d)
			return true
		}); err != nil {
			t.Fatalf("%d of %d dead letters: %v", len(all), n, err)
		}
		if len(all) == n {
			return all
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d of %d dead letters", len(all), n)
		}
	}
}

// broken is a handler that fails every job for good.
func broken(context.Context, jobs.Job, func(any)) (any, error) {
	return nil, jobs.Errorf(jobs.CodeDevice, "broken")
}

// testDeadLetters: a job that fails for good is kept with its reason, and may be tried again under
// its id.
func testDeadLetters(t *testing.T, q Queue) {
	c := q.Connect(t)
	stop := q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": func(context.Context, jobs.Job, func(any)) (any,
		error,
	) {
		return nil, jobs.Errorf(jobs.CodeDevice, "broken\nwith a second line")
	}})
	j := job("double", 21)
	j.Tenant = "t1"
	submit(t, c, j)
	if r := result(t, c, j); r.Status != jobs.Failed || r.Error.Code != jobs.CodeDevice {
		t.Fatalf("%+v", r)
	}
	d := letters(t, c, jobs.DeadFilter{Pool: jobs.PoolCPU, Kind: "double", Tenant: "t1", ID: j.ID}, 1)[0]
	if d.ID != j.ID || d.Kind != "double" || d.Tenant != "t1" || d.Attempts != 1 || d.Worker == "" || d.Died.IsZero() ||
		d.Reason.Code != jobs.CodeDevice || d.Reason.Message != "broken with a second line" {
		t.Fatalf("%+v", d)
	}
	if kept, err := jobs.DecodeJob(d.Data); err != nil || kept.ID != j.ID {
		t.Fatalf("%+v, %v", kept, err)
	}
	letters(t, c, jobs.DeadFilter{Kind: "other"}, 0)
	stop()
	// A cancellation of the first life does not end the second.
	if err := c.Cancel(within(t), j, false); err != nil {
		t.Fatal(err)
	}
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": double})()
	if err := c.Redrive(within(t), d); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Done || string(r.Output) != "42" {
		t.Fatalf("%+v", r)
	}
	letters(t, c, jobs.DeadFilter{}, 0)
	if err := c.Redrive(within(t), d); err != nil { // again: it is done, and stays so
		t.Fatal(err)
	}
	if r := result(t, c, j); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
}

func testPurgeDead(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"x": broken, "y": broken})()
	for _, kind := range []string{"x", "x", "y"} {
		submit(t, c, job(kind, 1))
	}
	letters(t, c, jobs.DeadFilter{}, 3)
	if n, err := c.Purge(within(t), jobs.DeadFilter{Kind: "x"}); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	letters(t, c, jobs.DeadFilter{Kind: "y"}, 1)
	if _, err := c.Purge(within(t), jobs.DeadFilter{Kind: "x.>"}); err == nil {
		t.Error("a filter with a wildcard was taken")
	}
}

// testLargeSpec: a spec that is too large for a message arrives as it was sent.
func testLargeSpec(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"length": func(_ context.Context, j jobs.Job,
		_ func(any),
	) (any, error) {
		var s string
		err := json.Unmarshal(j.Spec, &s)
		return len(s), err
	}})()
	for _, n := range []int{jobs.MaxInline - 2, jobs.MaxInline - 1, 3 << 20} {
		j := job("length", strings.Repeat("x", n))
		submit(t, c, j)
		if r := result(t, c, j); string(r.Output) != fmt.Sprint(n) {
			t.Fatalf("%+v", r)
		}
	}
}

// counter is a batch handler that doubles numbers and fails as a whole on a negative one.
type counter struct {
	mu    sync.Mutex
	seen  map[string]int
	sizes []int
}

func (b *counter) handle(_ context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, len(batch))
	out := make([]jobs.Outcome, len(batch))
	poison := false
	for i, j := range batch {
		b.seen[j.ID]++
		var n int
		if err := json.Unmarshal(j.Spec, &n); err != nil {
			out[i].Err = jobs.Errorf(jobs.CodeInvalid, "not a number")
			continue
		}
		poison = poison || n < 0
		out[i].Output = 2 * n
	}
	if poison {
		panic("a negative number")
	}
	return out, nil
}

func testBatches(t *testing.T, q Queue) {
	c := q.Connect(t)
	all := bulk(t, c, 100, func(i int, j *jobs.Job) {
		if i == 40 {
			j.Spec = json.RawMessage(`"x"`)
		}
	})
	b := counter{seen: map[string]int{}}
	defer q.Start(t, q.Connect(t), Workload{
		Batches: map[string]jobs.BatchHandler{"a": b.handle}, MaxBatch: 30,
		Linger: 50 * time.Millisecond, Concurrency: 1,
	})()
	for i, j := range all {
		r := result(t, c, j)
		if i == 40 && (r.Status != jobs.Failed || r.Error.Code != jobs.CodeInvalid) || i != 40 &&
			string(r.Output) != fmt.Sprint(2*i) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sizes) > 6 {
		t.Errorf("batches of %v", b.sizes)
	}
	for _, n := range b.sizes {
		if n > 30 {
			t.Errorf("batches of %v", b.sizes)
		}
	}
	for id, n := range b.seen {
		if n != 1 {
			t.Errorf("job %s was done %d times", id, n)
		}
	}
}

// testPoison: one job that makes its batch fail is found. The other jobs are done, with few
// repetitions.
func testPoison(t *testing.T, q Queue) {
	c := q.Connect(t)
	const n = 256
	all := bulk(t, c, n, func(i int, j *jobs.Job) {
		if i == 99 {
			j.Spec = json.RawMessage("-1")
		}
	})
	b := counter{seen: map[string]int{}}
	defer q.Start(t, q.Connect(t), Workload{
		Batches: map[string]jobs.BatchHandler{"a": b.handle}, MaxBatch: n,
		Linger: 50 * time.Millisecond,
	})()
	for i, j := range all {
		if r := result(t, c, j); (i == 99) != (r.Status == jobs.Failed) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	letters(t, c, jobs.DeadFilter{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, seen := range b.seen {
		if seen > 1+bits.Len(n-1) {
			t.Errorf("job %s was run %d times", id, seen)
		}
	}
}

// testBatchRetry: a batch that fails for a reason outside its jobs comes again as it was.
func testBatchRetry(t *testing.T, q Queue) {
	c := q.Connect(t)
	all := bulk(t, c, 10, func(int, *jobs.Job) {})
	var mu sync.Mutex
	failed := false
	b := counter{seen: map[string]int{}}
	defer q.Start(t, q.Connect(t), Workload{Batches: map[string]jobs.BatchHandler{"a": func(ctx context.Context,
		batch []jobs.Job, p func(int, any),
	) ([]jobs.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		if !failed {
			failed = true
			return nil, jobs.Retry(errors.New("the device is busy"))
		}
		return b.handle(ctx, batch, p)
	}}, MaxBatch: 10, Linger: 50 * time.Millisecond})()
	for i, j := range all {
		if r := result(t, c, j); string(r.Output) != fmt.Sprint(2*i) {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	for id, n := range b.seen {
		if n != 1 {
			t.Errorf("job %s was run %d times", id, n)
		}
	}
}

func testResultTTL(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"double": double})()
	short, long := job("double", 1), job("double", 2)
	short.ResultTTL = 1
	submit(t, c, short)
	submit(t, c, long)
	result(t, c, long)
	ctx := within(t)
	for {
		_, err := c.Lookup(ctx, short.ID)
		if errors.Is(err, jobs.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the result is still there")
		}
	}
	if _, err := c.Lookup(ctx, long.ID); err != nil {
		t.Fatalf("the result of another job is gone: %v", err)
	}
}

func testStats(t *testing.T, q Queue) {
	c := q.Connect(t)
	if err := c.Pause(within(t), jobs.PoolCPU, "b"); err != nil {
		t.Fatal(err)
	}
	bulk(t, c, 3, func(int, *jobs.Job) {})
	bulk(t, c, 2, func(_ int, j *jobs.Job) { j.Kind, j.Lane, j.Tenant = "b", jobs.High, "t" })
	st, err := c.Stats(within(t), jobs.PoolCPU)
	if err != nil {
		t.Fatal(err)
	}
	for i := range st.Sources {
		st.Sources[i].Level = "" // the client may submit all jobs at one level
	}
	want := []jobs.SourceStats{
		{Kind: "a", Lane: jobs.Normal, Tenant: jobs.DefaultTenant, Waiting: 3},
		{Kind: "b", Lane: jobs.High, Tenant: "t", Waiting: 2, Paused: true},
	}
	if st.Jobs != 5 || st.Bytes == 0 || st.Paused || st.Oldest.IsZero() || fmt.Sprint(st.Sources) != fmt.Sprint(want) {
		t.Fatalf("%+v", st)
	}
	n := 0
	if err := c.Jobs(within(t), jobs.PoolCPU, func(jobs.Job) bool { n++; return n < 4 }); err != nil || n != 4 {
		t.Fatalf("%d jobs listed, %v", n, err)
	}
}
