package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

// after makes a job of kind "a" that waits for others.
func after(parents ...jobs.Job) jobs.Job {
	j := job("a", nil)
	for _, p := range parents {
		j.After = append(j.After, p.ID)
	}
	return j
}

// testParents: a job begins when its parents are over. Until then it can be found, and Missing
// names the parents.
func testParents(t *testing.T, q Queue) {
	c := q.Connect(t)
	a := after()
	left, right := after(a), after(a)
	last := after(left, right, a)
	for _, j := range []jobs.Job{a, left, right, last} {
		submit(t, c, j)
	}
	if err := c.Submit(within(t), last); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("a waiting job was taken twice: %v", err)
	}
	found, err := c.Find(within(t), last.ID)
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := c.Missing(within(t), found); err != nil || !slices.Equal(missing, last.After) {
		t.Fatalf("waits for %v, want %v, %v", missing, last.After, err)
	}
	if missing, err := c.Missing(within(t), a); err != nil || missing != nil {
		t.Fatalf("a job without parents waits for %v, %v", missing, err)
	}
	var listed []string
	if err := c.Jobs(within(t), jobs.PoolCPU, func(j jobs.Job) bool {
		listed = append(listed,
			j.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{a.ID, left.ID, right.ID, last.ID}; !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": r.handle})()
	for _, j := range []jobs.Job{a, left, right, last} {
		if r := result(t, c, j); r.Status != jobs.Done || r.Attempts != 1 {
			t.Fatalf("%+v", r)
		}
	}
	if order := r.order(); len(order) != 4 || order[0] != a.ID || order[3] != last.ID {
		t.Errorf("ran %v of %v", order, listed)
	}
	if missing, err := c.Missing(within(t), found); err != nil || missing != nil {
		t.Errorf("a job that is over waits for %v, %v", missing, err)
	}
}

// testParentsTogether: a graph is submitted as one, in any order, for both pools, with delayed jobs
// in it, all or none.
func testParentsTogether(t *testing.T, q Queue) {
	c := q.Connect(t)
	a, b := after(), after()
	b.NotBefore = time.Now().Add(1200 * time.Millisecond)
	d := after(a, b)
	e := after(d)
	gpu := after(e)
	gpu.Pool = jobs.PoolGPU
	queued := after()
	submit(t, c, queued)
	if err := c.SubmitBatch(within(t), []jobs.Job{d, a, b, queued}); !errors.Is(err, jobs.ErrExists) ||
		!strings.Contains(err.Error(), queued.ID) {
		t.Fatalf("a graph with a job that is queued: %v", err)
	}
	for _, j := range []jobs.Job{a, b, d} {
		if _, err := c.Find(within(t), j.ID); !errors.Is(err, jobs.ErrNotFound) {
			t.Fatalf("half a graph was stored: %v", err)
		}
	}
	if err := c.SubmitBatch(within(t), []jobs.Job{gpu, e, d, a, b}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": func(_ context.Context, j jobs.Job, _ func(any)) (any,
		error,
	) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, j.ID)
		if early := time.Until(j.NotBefore); early > 0 {
			t.Errorf("job %s began %v too early", j.ID, early)
		}
		return nil, nil
	}})()
	for _, j := range []jobs.Job{a, b, d, e, queued} {
		if r := result(t, c, j); r.Status != jobs.Done {
			t.Fatalf("%+v", r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	at := func(j jobs.Job) int { return slices.Index(order, j.ID) }
	if len(order) != 5 || at(d) < at(a) || at(d) < at(b) || at(e) < at(d) {
		t.Errorf("ran %v, want %s and %s before %s, and %s behind it", order, a.ID, b.ID, d.ID, e.ID)
	}
	if _, err := c.Find(within(t), gpu.ID); err != nil {
		t.Errorf("the job of the other pool, which has no worker: %v", err)
	}
}

func testParentsRefused(t *testing.T, q Queue) {
	c := q.Connect(t)
	refused := func(what, want string, batch ...jobs.Job) {
		t.Helper()
		err := c.SubmitBatch(within(t), batch)
		if len(batch) == 1 {
			err = c.Submit(within(t), batch[0])
		}
		if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		for _, j := range batch {
			if _, err := c.Find(within(t), j.ID); jobs.CheckID("", j.ID) == nil && !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%s: job %s was stored: %v", what, j.ID, err)
			}
		}
	}
	nobody := after()
	refused("an unknown parent", "waits for "+nobody.ID+", which is not known", after(nobody))
	refused("an unknown parent in a batch", "which is not known", after(), after(nobody))
	a, b := after(), after()
	one := after(a)
	a.After, b.After = []string{b.ID}, []string{a.ID}
	refused("a circle", "they wait for each other in a circle", one, a, b)
	a.After = []string{a.ID}
	refused("itself", "it waits for itself", a)
	a.After = []string{b.ID, b.ID}
	refused("twice", "twice: name it once", a)
	a.After = []string{"b c"}
	refused("a bad id", `"b c"`, a)
	a.After, a.OnFailedParent = []string{b.ID}, "retry"
	refused("a bad policy", `on_failed_parent "retry": use "fail", "skip" or "run"`, a)
	a.After, a.OnFailedParent = nil, jobs.SkipChild
	refused("a policy alone", "on_failed_parent without after", a)
	many := after()
	for i := range jobs.MaxParents + 1 {
		many.After = append(many.After, fmt.Sprint("p", i))
	}
	refused("too many parents", "more than 64 jobs", many)

	// A circle over two submissions: the parent is withdrawn and would come back as its child's
	// child.
	p := after()
	submit(t, c, p)
	child := after(p)
	submit(t, c, child)
	if err := c.Withdraw(within(t), p); err != nil {
		t.Fatal(err)
	}
	p.After = []string{child.ID}
	refused("a circle over time", "job "+child.ID+" waits for it already", p)
}

// testParentsOver: parents that are over when their child is submitted, and a parent that the queue
// does not know any more.
func testParentsOver(t *testing.T, q Queue) {
	c := q.Connect(t)
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": r.handle})()
	a, b := after(), after()
	b.ResultTTL = 1
	for _, j := range []jobs.Job{a, b} {
		submit(t, c, j)
		result(t, c, j)
	}
	child := after(a)
	submit(t, c, child)
	if r := result(t, c, child); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
	ctx := within(t)
	for {
		if _, err := c.Lookup(ctx, b.ID); errors.Is(err, jobs.ErrNotFound) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Submit(ctx, after(a, b)); err == nil ||
		!strings.Contains(err.Error(), "waits for "+b.ID+", which is not known") {
		t.Fatalf("a child of a job that nobody knows any more: %v", err)
	}
}

// testParentsFail: what becomes of the children of a failed job, and of theirs, by what they say.
func testParentsFail(t *testing.T, q Queue) {
	c := q.Connect(t)
	bad, good := job("bad", nil), after()
	fails, skips, runs := after(good, bad), after(bad), after(bad, good)
	skips.OnFailedParent, runs.OnFailedParent = jobs.SkipChild, jobs.RunChild
	failsToo, skipsToo, runsToo := after(skips), after(fails), after(skips, fails)
	skipsToo.OnFailedParent, runsToo.OnFailedParent = jobs.SkipChild, jobs.RunChild
	if err := c.SubmitBatch(within(t), []jobs.Job{
		bad, good, fails, skips, runs, failsToo, skipsToo,
		runsToo,
	}); err != nil {
		t.Fatal(err)
	}
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{
		"a": r.handle,
		"bad": func(context.Context, jobs.Job, func(any)) (any, error) {
			return nil, jobs.Errorf(jobs.CodeInput, "no good")
		},
	})()
	for _, w := range []struct {
		j      jobs.Job
		status jobs.Status
		code   jobs.Code
		parent jobs.Job
	}{
		{fails, jobs.Failed, jobs.CodeParent, bad},
		{skips, jobs.Skipped, jobs.CodeSkipped, bad},
		{failsToo, jobs.Failed, jobs.CodeParent, skips},
		{skipsToo, jobs.Skipped, jobs.CodeSkipped, fails},
	} {
		r := result(t, c, w.j)
		if r.Status != w.status || r.Error == nil || r.Error.Code != w.code ||
			!strings.Contains(r.Error.Message, w.parent.ID) || r.Attempts != 0 {
			t.Errorf("%+v, want %s with code %s that names %s", r, w.status, w.code, w.parent.ID)
		}
	}
	for _, j := range []jobs.Job{good, runs, runsToo} {
		if r := result(t, c, j); r.Status != jobs.Done {
			t.Errorf("%+v", r)
		}
	}
	if order := r.order(); len(order) != 3 {
		t.Errorf("ran %v", order)
	}
	for _, d := range letters(t, c, jobs.DeadFilter{}, 3) {
		if !slices.Contains([]string{bad.ID, fails.ID, failsToo.ID}, d.ID) {
			t.Errorf("dead letter: %+v", d)
		}
	}
}

// testParentsWithdrawn: the children of a job that was withdrawn do not wait for ever.
func testParentsWithdrawn(t *testing.T, q Queue) {
	c := q.Connect(t)
	p := after()
	submit(t, c, p)
	child := after(p)
	submit(t, c, child)
	if err := c.Withdraw(within(t), p); err != nil {
		t.Fatal(err)
	}
	defer q.Work(t, q.Connect(t), nil)()
	if r := result(t, c, child); r.Status != jobs.Failed || r.Error.Code != jobs.CodeParent ||
		!strings.Contains(r.Error.Message, p.ID+" is gone") {
		t.Fatalf("%+v", r)
	}
}

// testParentsRedriven: a failed job and the child that it failed are both tried again, the child
// after it.
func testParentsRedriven(t *testing.T, q Queue) {
	c := q.Connect(t)
	p := job("a", nil)
	child := after(p)
	if err := c.SubmitBatch(within(t), []jobs.Job{p, child}); err != nil {
		t.Fatal(err)
	}
	stop := q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": broken})
	for _, j := range []jobs.Job{p, child} {
		if r := result(t, c, j); r.Status != jobs.Failed {
			t.Fatalf("%+v", r)
		}
	}
	all := letters(t, c, jobs.DeadFilter{}, 2)
	stop()
	// The parent first. Its letter may be the newer one: a resolver fails the child as soon as the
	// result of the parent is stored, and the letter of the parent follows that result.
	if all[0].ID != p.ID {
		slices.Reverse(all)
	}
	for _, d := range all {
		if err := c.Redrive(within(t), d); err != nil {
			t.Fatal(err)
		}
	}
	if missing, err := c.Missing(within(t), child); err != nil || !slices.Equal(missing, child.After) {
		t.Fatalf("waits for %v, %v", missing, err)
	}
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": r.handle})()
	for _, j := range []jobs.Job{p, child} {
		if r := result(t, c, j); r.Status != jobs.Done {
			t.Fatalf("%+v", r)
		}
	}
	if order := r.order(); !slices.Equal(order, []string{p.ID, child.ID}) {
		t.Errorf("ran %v", order)
	}
}

// testChildCancelled: a waiting job is cancelled with what waits for it, without a worker, and
// withdrawn as if it had never been.
func testChildCancelled(t *testing.T, q Queue) {
	c := q.Connect(t)
	p := after()
	child := after(p)
	grandchild := after(child)
	for _, j := range []jobs.Job{p, child, grandchild} {
		submit(t, c, j)
	}
	if err := c.Withdraw(within(t), grandchild); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(within(t), grandchild.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("it is still there: %v", err)
	}
	submit(t, c, grandchild)
	if err := c.Cancel(within(t), child, false); err != nil {
		t.Fatal(err)
	}
	if r := result(t, c, child); r.Status != jobs.Failed || r.Error.Code != jobs.CodeCanceled {
		t.Fatalf("%+v", r)
	}
	if r := result(t, c, grandchild); r.Status != jobs.Failed || r.Error.Code != jobs.CodeParent ||
		!strings.Contains(r.Error.Message, child.ID) {
		t.Fatalf("%+v", r)
	}
	if _, err := c.Find(within(t), p.ID); err != nil {
		t.Errorf("the parent is gone: %v", err)
	}
}

// testChildLate: a job whose deadline passes while it waits fails with that, though its parent is
// not over.
func testChildLate(t *testing.T, q Queue) {
	c := q.Connect(t)
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"wait": waiter, "a": double})()
	p := begun(t, c)
	child := after(p)
	child.Deadline = time.Now().Add(time.Second)
	submit(t, c, child)
	if r := result(t, c, child); r.Status != jobs.Failed || r.Error.Code != jobs.CodeDeadline {
		t.Fatalf("%+v", r)
	}
	if err := c.Cancel(within(t), p, true); err != nil {
		t.Fatal(err)
	}
	result(t, c, p)
}

// testGraphs: random graphs end as a walk over them says, every job runs once or not at all, and
// none before its parents are over.
func testGraphs(t *testing.T, q Queue) {
	c := q.Connect(t)
	var mu sync.Mutex
	runs := map[string]int{}
	over := map[string]bool{}
	defer q.Start(t, q.Connect(t), Workload{
		Concurrency: 8,
		Handlers: map[string]jobs.Handler{"g": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[j.ID]++
			for _, p := range j.After {
				// Jobs that did not run got their result elsewhere; the other jobs have left their
				// handler.
				if runs[p] > 0 && !over[p] {
					t.Errorf("job %s began before %s ended", j.ID, p)
				}
			}
			over[j.ID] = true
			var fail bool
			if err := json.Unmarshal(j.Spec, &fail); err != nil || fail {
				return nil, jobs.Errorf(jobs.CodeInput, "as told")
			}
			return nil, nil
		}},
	})()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(rt, "jobs")
		all := make([]jobs.Job, n)
		want := map[string]jobs.Status{}
		began := map[string]bool{}
		for i := range all {
			fail := rapid.IntRange(0, 5).Draw(rt, "fails") == 0
			j := job("g", fail)
			for _, p := range all[:i] {
				if rapid.IntRange(0, 2).Draw(rt, "edge") == 0 {
					j.After = append(j.After, p.ID)
				}
			}
			if len(j.After) > 0 {
				j.OnFailedParent = rapid.SampledFrom([]jobs.ParentPolicy{
					"", jobs.FailChild, jobs.SkipChild,
					jobs.RunChild,
				}).Draw(rt, "policy")
			}
			all[i] = j
			want[j.ID] = jobs.Done
			began[j.ID] = true
			if fail {
				want[j.ID] = jobs.Failed
			}
			if j.OnFailedParent != jobs.RunChild &&
				slices.ContainsFunc(j.After, func(p string) bool { return want[p] != jobs.Done }) {
				began[j.ID] = false
				if want[j.ID] = jobs.Failed; j.OnFailedParent == jobs.SkipChild {
					want[j.ID] = jobs.Skipped
				}
			}
		}
		// The first k one by one, the rest as one, in any order.
		k := rapid.IntRange(0, n).Draw(rt, "one by one")
		for _, j := range all[:k] {
			if err := c.Submit(t.Context(), j); err != nil {
				rt.Fatal(err)
			}
		}
		if err := c.SubmitBatch(t.Context(), rapid.Permutation(all[k:]).Draw(rt, "order")); err != nil {
			rt.Fatal(err)
		}
		for _, j := range all {
			if r := result(t, c, j); r.Status != want[j.ID] {
				rt.Fatalf("%s: %+v, want %s", j.ID, r, want[j.ID])
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, j := range all {
			if (runs[j.ID] == 1) != began[j.ID] || runs[j.ID] > 1 {
				rt.Fatalf("%s ran %d times: begins %v", j.ID, runs[j.ID], began[j.ID])
			}
		}
	})
}
