package natsq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// TestEndings: which results leave a dead letter, what a result says, how long a retry waits, and
// why a job ends without a run.
func TestEndings(t *testing.T) {
	for _, c := range []struct {
		status jobs.Status
		code   jobs.Code
		waited bool
		want   bool
	}{
		{jobs.Done, "", false, false},
		{jobs.Failed, jobs.CodeCanceled, false, false},
		{jobs.Failed, jobs.CodeDeadline, false, false},
		{jobs.Failed, jobs.CodeInternal, false, true},
		{jobs.Failed, jobs.CodeInvalid, false, true},
		{jobs.Failed, jobs.CodeInternal, true, true},
		{jobs.Failed, jobs.CodeInvalid, true, false},
		{jobs.Failed, jobs.CodeInput, false, true},
		{jobs.Failed, jobs.CodeInput, true, false},
	} {
		r := jobs.Result{Status: c.status}
		if c.code != "" {
			r.Error = &jobs.Error{Code: c.code}
		}
		if queue.NeedsLetter(r, c.waited) != c.want {
			t.Errorf("%+v", c)
		}
	}
	for attempt, most := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
		6: 32 * time.Second, 7: time.Minute, 8: time.Minute, 100: time.Minute, math.MaxInt: time.Minute,
	} {
		least, longest := most, time.Duration(0)
		for range 300 {
			d := queue.Backoff(attempt)
			least, longest = min(least, d), max(longest, d)
		}
		if least < most/2 || longest >= most || longest < most*9/10 || least > most*6/10 {
			t.Errorf("attempt %d waits %v to %v of %v", attempt, least, longest, most)
		}
	}
	w := &Worker{WorkerOptions: WorkerOptions{Name: "w"}, ctl: &operatorState{}}
	task := func(attempt int) *task {
		return &task{
			id: "a", attempt: attempt, src: wire.Source{Kind: "k"}, job: jobs.Job{MaxAttempts: 3},
			span: tracing.NoSpan,
		}
	}
	for name, c := range map[string]struct {
		output any
		err    error
		code   jobs.Code
		want   string
	}{
		"done": {map[string]int{"x": 1}, nil, "", `{"x":1}`}, "nothing": {nil, nil, "", "null"},
		"no JSON":     {math.NaN(), nil, jobs.CodeInternal, "its output is not JSON"},
		"failed":      {nil, jobs.Errorf(jobs.CodeInput, "x"), jobs.CodeInput, "x"},
		"the largest": {strings.Repeat("x", jobs.MaxMessage-4096-2), nil, "", "x"},
		"too large": {
			strings.Repeat("x", jobs.MaxMessage-4096-1), nil, jobs.CodeInternal,
			fmt.Sprintf("an output of %d bytes", jobs.MaxMessage-4096+1),
		},
		"a sentence": {nil, errors.New(strings.Repeat("y", 64<<10)), jobs.CodeInternal, strings.Repeat("y", 64<<10)},
		"too long": {
			nil, errors.New(strings.Repeat("y", 64<<10+1)), jobs.CodeInternal,
			strings.Repeat("y", 64<<10) + " …",
		},
	} {
		r := w.makeResult(task(2), c.output, c.err)
		if r.Version != jobs.Version || r.JobID != "a" || r.Kind != "k" || r.Attempts != 2 || r.Worker != "w" ||
			r.Finished.IsZero() || (r.Status == jobs.Done) != (c.code == "") {
			t.Errorf("%s: %+.100v", name, r)
		}
		if c.code == "" && (r.Error != nil || !strings.Contains(string(r.Output), c.want)) || c.code != "" &&
			(r.Output != nil || r.Error.Code != c.code || !strings.Contains(r.Error.Message, c.want)) {
			t.Errorf("%s: %.100s, %.100v", name, r.Output, r.Error)
		}
		if name == "a sentence" && len(r.Error.Message) != 64<<10 || name == "too long" &&
			len(r.Error.Message) != 64<<10+len(" …") {
			t.Errorf("%s has %d bytes", name, len(r.Error.Message))
		}
	}
	for attempt, want := range map[int]bool{1: true, 6: true, 7: false} {
		var e *jobs.Error
		if err := w.mustRun(task(attempt)); (err == nil) != want || err != nil &&
			(!errors.As(err, &e) || e.Code != jobs.CodeInternal ||
				!strings.Contains(err.Error(), "was given out 6 times")) {
			t.Errorf("delivery %d: %v", attempt, err)
		}
	}
	late, early := task(1), task(1)
	late.job.Deadline, early.job.Deadline = time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	if err := w.mustRun(late); !errors.Is(err, jobs.ErrDeadline) || !strings.Contains(err.Error(), "was not begun by") {
		t.Error(err)
	}
	if err := w.mustRun(early); err != nil {
		t.Error(err)
	}
	ctl := &operatorState{cancels: map[string]cancellation{
		"a": {cause: jobs.ErrCancelled, revision: 5},
		"b": {cause: jobs.ErrFinish, revision: 5},
	}}
	w.ctl = ctl
	for forgiven, want := range map[uint64]bool{0: false, 4: false, 5: true, 6: true} {
		k := task(1)
		k.forgiven = forgiven
		if err := w.mustRun(k); (err == nil) != want || err != nil && !errors.Is(err, jobs.ErrCancelled) {
			t.Errorf("a cancellation, forgiven up to %d: %v", forgiven, err)
		}
	}
	k := task(1)
	if k.id = "b"; w.mustRun(k) != nil {
		t.Error("a job that is asked to finish does not begin")
	}
	if ctx, stop := withDeadline(t.Context(), time.Time{}); ctx != t.Context() {
		t.Error("a job without a deadline has one")
	} else {
		stop()
	}
	ctx, stop := withDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	if !errors.Is(context.Cause(ctx), jobs.ErrDeadline) {
		t.Error(context.Cause(ctx))
	}
	if v, err := protect(func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Error(v, err)
	}
	var e *jobs.Error
	if _, err := protect(func() (int, error) { panic("p") }); !errors.As(err, &e) || e.Code != jobs.CodeInternal ||
		!strings.Contains(err.Error(), "handler panicked: p") {
		t.Error(err)
	}
}
