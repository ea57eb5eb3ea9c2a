package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func TestHandlers(t *testing.T) {
	var h Handlers
	fn := func(context.Context, jobs.Job) (any, error) { return nil, nil }
	if err := errors.Join(h.Handle("b", fn), h.Handle("a", fn)); err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
	for _, kind := range []string{"a", "", "a b", KindStream} {
		if h.Handle(kind, fn) == nil {
			t.Errorf("%q was registered", kind)
		}
	}
	if h.Handle("c", nil) == nil {
		t.Error("no function was registered")
	}
	if d := cmp.Diff([]string{"a", "b"}, h.Kinds()); d != "" || len(h.Jobs()) != 2 {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

// TestHandlersWork: jobs of registered kinds come back from a queue with what their functions
// return.
func TestHandlersWork(t *testing.T) {
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	var h Handlers
	err := errors.Join(
		h.Handle("double", func(_ context.Context, job jobs.Job) (any, error) {
			var v float64
			if err := json.Unmarshal(job.Spec, &v); err != nil {
				return nil, jobs.Errorf(jobs.CodeInvalid, "spec: %v", err)
			}
			return 2 * v, nil
		}),
		h.Handle("panic", func(context.Context, jobs.Job) (any, error) { panic("no") }),
	)
	if err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
	w, err := q.Work(ctx, natsq.WorkerOptions{Name: "w", Pool: jobs.PoolCPU, Handlers: h.Jobs()})
	if err != nil {
		t.Fatalf("q.Work: %v, want no error", err)
	}
	defer func() {
		if err := w.Drain(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("w.Drain: %v, want no error", err)
		}
	}()
	for id, c := range map[string]struct {
		kind, spec, output string
		code               jobs.Code
	}{
		"good": {"double", "21", "42", ""}, "bad": {"double", `"x"`, "", jobs.CodeInvalid},
		"panic": {"panic", "1", "", jobs.CodeInternal},
	} {
		if err := q.Queue.Submit(ctx, jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: c.kind,
			Spec: json.RawMessage(c.spec),
		}); err != nil {
			t.Fatalf("Queue.Submit: %v, want no error", err)
		}
		r, err := q.Results.Result(ctx, id)
		if err != nil {
			t.Fatalf("Results.Result: %v, want no error", err)
		}
		if string(r.Output) != c.output || (r.Error != nil) != (c.code != "") || r.Error != nil &&
			r.Error.Code != c.code {
			t.Errorf("%s: output %s, error %+v, want %s with code %q", id, r.Output, r.Error, c.output, c.code)
		}
	}
}
