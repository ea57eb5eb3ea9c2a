package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Tests of what no client can see: crashes between two steps, and everybody at once.

func worker(t testing.TB, c *Conn, handlers map[string]jobs.Handler) *Worker {
	t.Helper()
	w, err := c.Work(t.Context(), WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Handlers: handlers, Concurrency: 16,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func plain(id string, after ...string) jobs.Job { return jobstest.Job(id, "k", after...) }

func finished(t testing.TB, c *Conn, id string) jobs.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := c.Results.Result(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counting is a handler that counts its runs by job.
type counting struct {
	mu   sync.Mutex
	runs map[string]int
}

func (h *counting) handle(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[string]int{}
	}
	h.runs[j.ID]++
	return nil, nil
}

func (h *counting) check(t *testing.T, ids ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.runs) != len(ids) {
		t.Errorf("%d jobs ran, want %d: %v", len(h.runs), len(ids), h.runs)
	}
	for _, id := range ids {
		if h.runs[id] != 1 {
			t.Errorf("job %s ran %d times", id, h.runs[id])
		}
	}
}

// TestDependStranger: a parent whose worker does not resolve children, because it was killed right
// after it wrote the result or is written in another language, holds no child back.
func TestDependStranger(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	if err := c.Control.Pause(t.Context(), jobs.PoolCPU, "k"); err != nil {
		t.Fatal(err)
	}
	for _, j := range []jobs.Job{plain("p"), plain("child", "p"), plain("grandchild", "child")} {
		if err := c.Queue.Submit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"p", "child"} {
		m, err := queue.ResultMessage(jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done}, 60)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.PublishMsg(t.Context(), c.RetryIdempotent, "store a result", m); err != nil {
			t.Fatal(err)
		}
	}
	var h counting
	worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{"k": h.handle})
	if err := c.Control.Resume(t.Context(), jobs.PoolCPU, "k"); err != nil {
		t.Fatal(err)
	}
	finished(t, c, "grandchild")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs["grandchild"] != 1 || h.runs["child"] != 0 {
		t.Errorf("runs: %v", h.runs)
	}
}

// TestDependSteps: after whichever step a process dies, other processes continue from there, and
// the job runs once.
func TestDependSteps(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	ctx := t.Context()
	stand := func(j jobs.Job) *natsconn.Message {
		t.Helper()
		m, err := c.LastOnce(ctx, wire.WaitStream, wire.SourceOf(j).Wait(j.ID))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	done := func(id string) {
		t.Helper()
		if _, err := c.Results.Put(ctx, jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done},
			60); err != nil {
			t.Fatal(err)
		}
	}
	var all []jobs.Job
	for _, step := range []string{"nothing", "edge", "queued", "removed", "all edges", "resubmitted"} {
		p, q := plain("p-"+step[:3]), plain("q-"+step[:3])
		j := plain("child-"+step[:3], p.ID, q.ID)
		for _, j := range []jobs.Job{p, q, j} {
			if err := c.Queue.Submit(ctx, j); err != nil {
				t.Fatal(err)
			}
		}
		m := stand(j)
		if err := c.Queue.Withdraw(ctx, p); err != nil {
			t.Fatal(err)
		}
		if err := c.Queue.Withdraw(ctx, q); err != nil {
			t.Fatal(err)
		}
		done(p.ID)
		done(q.ID)
		remove := func(seq uint64) {
			t.Helper()
			if err := c.Remove(ctx, wire.WaitStream, seq); err != nil {
				t.Fatal(err)
			}
		}
		switch step {
		case "edge":
			remove(m.Seq + 1)
		case "all edges", "queued", "removed":
			remove(m.Seq + 1)
			remove(m.Seq + 2)
			if step == "all edges" {
				break
			}
			if err := c.Queue.Enqueue(ctx, m, wire.SourceOf(j), j.ID, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if step == "removed" {
				remove(m.Seq)
			}
		case "resubmitted": // a withdrawal that died in the middle has left the edges
			remove(m.Seq)
			if err := c.Queue.Submit(ctx, j); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, j)
	}
	var h counting
	for range 3 {
		worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{"k": h.handle})
	}
	var ids []string
	for _, j := range all {
		if r := finished(t, c, j.ID); r.Status != jobs.Done {
			t.Errorf("%+v", r)
		}
		ids = append(ids, j.ID)
	}
	h.check(t, ids...)
	emptied(t, c)
}

// emptied waits until nothing waits and no edge is left.
func emptied(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		st, err := c.JS.Stream(ctx, wire.WaitStream)
		if err != nil {
			t.Fatal(err)
		}
		if st.CachedInfo().State.Msgs == 0 {
			return
		}
	}
}

// TestDependRace: jobs that many resolve at the same time run once, and of two parents that end at
// once the last one is seen.
func TestDependRace(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	var conns []*Conn
	for range 6 {
		conns = append(conns, jobstest.Leased(t, s, 2*time.Second, Connect))
	}
	var ids []string
	for n := range 30 {
		p, q, child := plain(fmt.Sprint("p", n)), plain(fmt.Sprint("q", n)),
			plain(fmt.Sprint("c", n), fmt.Sprint("p", n), fmt.Sprint("q", n))
		p.Pool, q.Pool = jobs.PoolGPU, jobs.PoolGPU // nobody does those: they end here
		for _, j := range []jobs.Job{p, q, child} {
			if err := c.Queue.Submit(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for i, c := range conns {
			all.Go(func() {
				id := []string{p.ID, q.ID}[i%2]
				if _, err := c.Results.Put(t.Context(),
					jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done}, 60); err != nil {
					t.Error(err)
				}
				if err := c.Queue.ResolveChildren(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if _, err := c.LastOnce(t.Context(), wire.WaitStream, wire.SourceOf(child).Wait(child.ID)); !errors.Is(err,
			jobs.ErrNotFound) {
			t.Errorf("job %s still waits after both parents were seen to be over: %v", child.ID, err)
		}
		ids = append(ids, child.ID)
	}
	// Only now: a worker also resolves waiting jobs, and a job that it is about to move has no edge
	// left.
	var h counting
	worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{"k": h.handle})
	for _, id := range ids {
		finished(t, c, id)
	}
	h.check(t, ids...)
}

// TestDependExpired: a parent's result that expires after it was seen counts like a kept result.
func TestDependExpired(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	short, long := plain("short"), plain("long")
	short.ResultTTL = 1
	long.Kind = "long"
	if err := c.Queue.SubmitBatch(t.Context(), []jobs.Job{short, long, plain("child", "short", "long")}); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	var h counting
	worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{
		"k": h.handle,
		"long": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
			select {
			case <-release:
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := func() bool {
		missing, err := c.Queue.Missing(ctx, plain("child", "short", "long"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.Equal(missing, []string{"long"})
	}
	for !seen() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the end of the parent was not seen")
		}
	}
	for {
		if _, err := c.Results.Lookup(ctx, "short"); errors.Is(err, jobs.ErrNotFound) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if r := finished(t, c, "child"); r.Status != jobs.Done {
		t.Errorf("%+v", r)
	}
}

// TestDependClean: a withdrawn job leaves nothing. A submission with the id of a waiting job is
// that job.
func TestDependClean(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	p, child := plain("p"), plain("child", "p", "q")
	q := plain("q")
	p.Pool, q.Pool = jobs.PoolGPU, jobs.PoolGPU // nobody does those
	if err := c.Queue.SubmitBatch(t.Context(), []jobs.Job{p, q, child}); err != nil {
		t.Fatal(err)
	}
	if err := c.Queue.Withdraw(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	emptied(t, c)
	if err := c.Queue.Submit(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if err := c.Queue.Submit(t.Context(), plain("child")); err != nil {
		t.Fatal(err)
	}
	var h counting
	worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{"k": h.handle})
	finished(t, c, "child")
	for _, j := range []jobs.Job{p, q} {
		if err := c.Queue.Cancel(t.Context(), j, false); err != nil {
			t.Fatal(err)
		}
	}
	emptied(t, c)
	h.check(t, "child")
}

// TestDependBad: a message that is no job becomes a dead letter, as in a queue.
func TestDependBad(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, Connect)
	subject := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Lane: jobs.Normal, Tenant: "t"}.Wait("bad")
	for _, m := range []*nats.Msg{
		{Subject: subject, Data: []byte("{")},
		{Subject: "exo.wait.a.b.c.d.e"},
		{Subject: "exo.edge.p.x", Data: []byte("nonsense")},
	} {
		if err := c.PublishMsg(t.Context(), c.RetryIdempotent, "store nonsense", m); err != nil {
			t.Fatal(err)
		}
	}
	var h counting
	worker(t, jobstest.Leased(t, s, 2*time.Second, Connect), map[string]jobs.Handler{"k": h.handle})
	if r := finished(t, c, "bad"); r.Status != jobs.Failed || r.Error.Code != jobs.CodeInvalid {
		t.Errorf("%+v", r)
	}
	if err := c.Queue.Submit(t.Context(), plain("p")); err != nil {
		t.Fatal(err)
	}
	finished(t, c, "p")
	if err := c.Queue.ResolveChildren(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	emptied(t, c)
}

// BenchmarkDepend: a chain of jobs, and jobs without parents while none and while another waits.
func BenchmarkDepend(b *testing.B) {
	run := func(b *testing.B, name string, fn func(b *testing.B, c *Conn)) {
		b.Run(name, func(b *testing.B) {
			s, c := jobstest.InProcess(b, Connect)
			workers := jobstest.Leased(b, s, 2*time.Second, Connect)
			worker(b, workers, map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, nil
			}})
			b.ResetTimer()
			fn(b, c)
		})
	}
	many := func(b *testing.B, c *Conn) {
		var ids []string
		for n := 0; n < b.N; n += jobs.MaxBatch {
			var batch []jobs.Job
			for i := n; i < min(b.N, n+jobs.MaxBatch); i++ {
				batch = append(batch, plain(fmt.Sprint("j", i)))
				ids = append(ids, batch[len(batch)-1].ID)
			}
			if err := c.Queue.SubmitBatch(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
		for _, id := range ids {
			finished(b, c, id)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	}
	run(b, "plain", many)
	run(b, "plain while one waits", func(b *testing.B, c *Conn) {
		p := plain("p")
		p.Pool = jobs.PoolGPU
		if err := c.Queue.Submit(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		if err := c.Queue.Submit(b.Context(), plain("w", "p")); err != nil {
			b.Fatal(err)
		}
		many(b, c)
	})
	run(b, "chain", func(b *testing.B, c *Conn) {
		const length = 100
		var n atomic.Int64
		for range (b.N + length - 1) / length {
			var batch []jobs.Job
			last := ""
			for range length {
				j := plain(fmt.Sprint("j", n.Add(1)))
				if last != "" {
					j.After = []string{last}
				}
				last = j.ID
				batch = append(batch, j)
			}
			if err := c.Queue.SubmitBatch(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			finished(b, c, last)
		}
		b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(n.Load()), "ms/link")
	})
}
