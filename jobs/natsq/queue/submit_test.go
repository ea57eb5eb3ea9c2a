package queue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestSubmitBounds: batches of 1 to the most jobs, all or none, and specs that stay in the message
// or go into the object store.
func TestSubmitBounds(t *testing.T) {
	c := inside(t)
	ctx := t.Context()
	if err := c.SubmitBatch(ctx, numbered("a", jobs.MaxBatch)); err != nil {
		t.Error(err)
	}
	var e *jobs.Error
	if err := c.SubmitBatch(ctx, numbered("b", jobs.MaxBatch+1)); !errors.As(err, &e) || e.Code != jobs.CodeInvalid {
		t.Errorf("%d jobs: %v", jobs.MaxBatch+1, err)
	}
	for name, all := range map[string][]jobs.Job{
		"twice":     {plain("c0"), plain("c1"), plain("c0")},
		"one there": {plain("d0"), plain("a7"), plain("d1")}, "one not valid": {plain("e0"), plain("e 1")},
	} {
		if err := c.SubmitBatch(ctx, all); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		for _, j := range all {
			if _, err := c.Find(ctx, j.ID); err == nil && j.ID != "a7" {
				t.Errorf("%s: job %s is queued", name, j.ID)
			}
		}
	}
	spec := func(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }
	for n, inline := range map[int]bool{
		1: true, jobs.MaxInline - 1: true, jobs.MaxInline: true,
		jobs.MaxInline + 1: false, jobs.MaxInline * 2: false,
	} {
		j := plain(fmt.Sprint("s", n))
		if n > 1 {
			j.Spec = spec(n)
		}
		m, ready, err := c.Prepare(ctx, j)
		if err != nil {
			t.Fatal(err)
		}
		if (ready.SpecRef == nil) != inline || inline && !bytes.Equal(ready.Spec, j.Spec) ||
			bytes.Contains(m.Data, []byte("xxxx")) != (inline && n > 1) {
			t.Errorf("a spec of %d bytes: reference %+v", n, ready.SpecRef)
		}
		if inline {
			continue
		}
		if got, err := c.Spec(ctx, ready.SpecRef); err != nil || !bytes.Equal(got, j.Spec) {
			t.Errorf("a spec of %d bytes: %d come back, %v", n, len(got), err)
		}
		for what, harm := range map[string]func(*jobs.ObjectRef){
			"size": func(r *jobs.ObjectRef) { r.Size++ }, "less": func(r *jobs.ObjectRef) { r.Size-- },
			"sum":  func(r *jobs.ObjectRef) { r.SHA256 = strings.Repeat("0", 64) },
			"name": func(r *jobs.ObjectRef) { r.Name += "x" },
		} {
			ref := *ready.SpecRef
			harm(&ref)
			if _, err := c.Spec(ctx, &ref); !errors.As(err, &e) || e.Code != jobs.CodeInvalid || jobs.Retryable(err) {
				t.Errorf("another %s: %v", what, err)
			}
		}
	}
	if checkSpec([]byte("1")) != nil || checkSpec([]byte("{")) == nil {
		t.Error("what is JSON")
	}
	delayed := plain("f")
	delayed.NotBefore = time.Now().Add(time.Hour)
	if err := c.Submit(ctx, delayed); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Submit(ctx, plain("f")); !errors.Is(err, jobs.ErrExists) ||
			!strings.Contains(err.Error(), "is delayed") {
			t.Errorf("a job that is delayed: %v", err)
		}
	}
	if err := c.Submit(ctx, plain("a1")); !errors.Is(err, jobs.ErrExists) {
		t.Errorf("a job that is queued: %v", err)
	}
	some := []jobs.Job{plain("x"), plain("a3"), plain("a2")}
	if n, first, err := c.countKnown(ctx, some, sourcesOf(some)); n != 2 || first != "a3" || err != nil {
		t.Errorf("%d are known, the first is %s, %v", n, first, err)
	}
	if err := c.Cancel(ctx, delayed, false); err != nil {
		t.Error(err)
	}
	if r, err := c.results.Lookup(ctx, "f"); err != nil || r.Error == nil || r.Error.Code != jobs.CodeCanceled ||
		!strings.Contains(r.Error.Message, "before it began") {
		t.Errorf("%+v, %v", r, err)
	}
	if err := c.Submit(ctx, plain("f")); !errors.Is(err, jobs.ErrExists) ||
		!strings.Contains(err.Error(), "has a result") {
		t.Errorf("a job that is over: %v", err)
	}
	if err := c.Cancel(ctx, plain("a4"), true); err != nil {
		t.Error(err)
	}
	if _, err := c.Find(ctx, "a4"); err != nil {
		t.Errorf("a job that is asked to finish is gone: %v", err)
	}
	if err := c.Cancel(ctx, jobs.Job{ID: "a b"}, false); err == nil {
		t.Error("an id that is none is cancelled")
	}
	if err := c.Withdraw(ctx, plain("a5")); err != nil {
		t.Error(err)
	}
	if _, err := c.Find(ctx, "a5"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job that was withdrawn: %v", err)
	}
	if _, err := c.results.Lookup(ctx, "a5"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job that was withdrawn has a result: %v", err)
	}
	if n, err := c.conn.Purge(ctx, wire.JobStream(jobs.PoolCPU), wire.SourceOf(plain("a6")).Job("a6")); n != 1 ||
		err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
	if n, err := c.conn.PurgeOnce(ctx, "NONE", "x", 0); n != 0 || err == nil {
		t.Errorf("a stream that is not there: %d, %v", n, err)
	}
}
