package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// parts are a store of dead letters, and the parts that its tests use to make letters.
type parts struct {
	*queue.DeadLetters
	conn    *natsconn.Conn
	queue   *queue.Queue
	results *queue.Results
}

// connect starts a server without a port, and connects to it.
func connect(t testing.TB) parts {
	t.Helper()
	_, c := jobstest.InProcess(t, natsq.Connect)
	return parts{c.Letters, c.Conn, c.Queue, c.Results}
}

// TestLetters: what a letter says, which a filter selects, how long its reason may be, and that a
// redrive gives a job a second life.
func TestLetters(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	for i, reason := range []string{
		"short", "two\r\nlines", strings.Repeat("x", natsconn.MaxReason),
		strings.Repeat("x", natsconn.MaxReason+1), strings.Repeat("ü", natsconn.MaxReason),
	} {
		j := jobstest.Job(fmt.Sprint("a", i), "k").WithDefaults()
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(ctx, c.conn.RetryIdempotent, queue.StoredLetter{
			Source: wire.SourceOf(j), ID: j.ID, Data: data, Reason: jobs.Errorf(jobs.CodeInput, "%s", reason),
			Attempts: i + 1, Worker: "w",
		}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	collect := func(f jobs.DeadFilter) (ids []string) {
		t.Helper()
		if err := c.List(ctx, f, func(d jobs.DeadLetter) bool {
			ids = append(ids, d.ID)
			if d.Pool != jobs.PoolCPU || d.Kind != "k" || d.Tenant != jobs.DefaultTenant || d.Worker != "w" ||
				d.Reason.Code != jobs.CodeInput || d.Attempts != int(d.ID[1]-'0')+1 || d.Died.IsZero() ||
				len(d.Data) == 0 {
				t.Errorf("%+.300v", d)
			}
			got = append(got, d.Reason.Message)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if ids := collect(jobs.DeadFilter{}); !slices.Equal(ids, []string{"a0", "a1", "a2", "a3", "a4"}) {
		t.Error(ids)
	}
	if want := []string{
		"short", "two  lines", strings.Repeat("x", 4096), strings.Repeat("x", 4096),
		strings.Repeat("ü", 2048),
	}; !slices.Equal(got, want) {
		t.Errorf("reasons %.200q", got)
	}
	for _, f := range []jobs.DeadFilter{{ID: "a3"}, {Pool: jobs.PoolCPU, Kind: "k", Tenant: "default", ID: "a3"}} {
		if ids := collect(f); !slices.Equal(ids, []string{"a3"}) {
			t.Errorf("%+v: %v", f, ids)
		}
	}
	for _, f := range []jobs.DeadFilter{{Pool: jobs.PoolGPU}, {Kind: "l"}, {Tenant: "t"}, {ID: "a9"}} {
		if ids := collect(f); len(ids) != 0 {
			t.Errorf("%+v: %v", f, ids)
		}
	}
	for _, f := range []jobs.DeadFilter{{Pool: "*"}, {Kind: "a.b"}, {Tenant: ">"}, {ID: "a b"}} {
		if err := c.List(ctx, f, nil); err == nil {
			t.Errorf("%+v is a filter", f)
		}
		if n, err := c.Purge(ctx, f); err == nil || n != 0 {
			t.Errorf("%+v is a filter: %d", f, n)
		}
	}
	seen := 0
	if err := c.List(ctx, jobs.DeadFilter{},
		func(jobs.DeadLetter) bool { seen++; return seen < 2 }); err != nil || seen != 2 {
		t.Errorf("%d letters, %v", seen, err)
	}
	letter := func(id string) (d jobs.DeadLetter) {
		t.Helper()
		if err := c.List(ctx, jobs.DeadFilter{ID: id},
			func(one jobs.DeadLetter) bool { d = one; return true }); err != nil {
			t.Fatal(err)
		}
		return d
	}
	wrong := letter("a0")
	wrong.ID = "b"
	if err := c.Redrive(ctx, wrong); err == nil || !strings.Contains(err.Error(), `holds a job with the id "a0"`) {
		t.Error(err)
	}
	wrong.Data = []byte("{")
	if err := c.Redrive(ctx, wrong); err == nil {
		t.Error("a letter that is no job is redriven")
	}
	for id, status := range map[string]jobs.Status{"a0": jobs.Failed, "a1": jobs.Done, "a2": ""} {
		if status != "" {
			r := jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: status}
			if status == jobs.Failed {
				r.Error = &jobs.Error{Code: jobs.CodeInput, Message: "x"}
			}
			if _, err := c.results.Put(ctx, r, 60); err != nil {
				t.Fatal(err)
			}
		}
		d := letter(id)
		for range 2 { // a call that failed in the middle may be repeated
			if err := c.Redrive(ctx, d); err != nil && !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
		_, err := c.queue.Find(ctx, id)
		if queued := err == nil; queued != (status != jobs.Done) {
			t.Errorf("%s with the result %q is queued: %v, %v", id, status, queued, err)
		}
		if _, err := c.results.Lookup(ctx, id); (err == nil) != (status == jobs.Done) {
			t.Errorf("%s: its result: %v", id, err)
		}
		if ids := collect(jobs.DeadFilter{ID: id}); len(ids) != 0 {
			t.Errorf("%s: its letter is there", id)
		}
	}
	if n, err := c.Purge(ctx, jobs.DeadFilter{ID: "a3"}); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.Purge(ctx, jobs.DeadFilter{}); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// TestSecondLife: a job that is redriven has neither the times nor, once it has begun, the parents
// of its first life, and forgives the cancellations up to then.
func TestSecondLife(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	for id, k := range map[string]struct {
		code      jobs.Code
		cancelled bool
		reason    string
	}{
		"a": {jobs.CodeInput, true, "a\fb\vc\x0ed\te"}, "b": {jobs.CodeParent, false, "x"},
		"c": {jobs.CodeInput, false, "x"},
	} {
		j := jobstest.Job(id, "k").WithDefaults()
		j.After = []string{"parent-" + id}
		j.Deadline, j.NotBefore, j.OnFailedParent = time.Now().Add(-time.Hour), time.Now().Add(-2*time.Hour),
			jobs.SkipChild
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(ctx, c.conn.RetryIdempotent, queue.StoredLetter{
			Source: wire.SourceOf(j), ID: id, Data: data, Reason: &jobs.Error{Code: k.code, Message: k.reason},
			Attempts: 1, Worker: "w",
		}); err != nil {
			t.Fatal(err)
		}
		if err := c.queue.Submit(ctx, jobstest.Job("parent-"+id, "k")); err != nil {
			t.Fatal(err)
		}
		if k.cancelled {
			if err := c.queue.Cancel(ctx, j, true); err != nil {
				t.Fatal(err)
			}
		}
		var letter jobs.DeadLetter
		if err := c.List(ctx, jobs.DeadFilter{ID: id},
			func(d jobs.DeadLetter) bool { letter = d; return true }); err != nil {
			t.Fatal(err)
		}
		if letter.Reason.Message != k.reason {
			t.Errorf("%s: the reason %q", id, letter.Reason.Message)
		}
		mark, merr := c.conn.LastOnce(ctx, "KV_"+wire.CancelBucket, "$KV."+wire.CancelBucket+"."+id)
		if err := c.Redrive(ctx, letter); err != nil {
			t.Fatal(err)
		}
		stream, subject := wire.JobStream(j.Pool), wire.SourceOf(j).Job(id)
		if k.code == jobs.CodeParent {
			stream, subject = wire.WaitStream, wire.SourceOf(j).Wait(id)
		}
		m, err := c.conn.LastOnce(ctx, stream, subject)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if k.code == jobs.CodeParent {
			continue
		}
		now, err := jobs.DecodeJob(m.Data)
		if err != nil || !now.Deadline.IsZero() || !now.NotBefore.IsZero() || len(now.After) != 0 ||
			now.OnFailedParent != "" {
			t.Errorf("%s: %+v, %v", id, now, err)
		}
		want := ""
		if k.cancelled {
			want = strconv.FormatUint(mark.Seq, 10)
		} else if !errors.Is(merr, jobs.ErrNotFound) {
			t.Errorf("%s: a mark, %v", id, merr)
		}
		if got := m.Header.Get(queue.HeaderForgiven); got != want {
			t.Errorf("%s forgives %q, want %q", id, got, want)
		}
	}
}
