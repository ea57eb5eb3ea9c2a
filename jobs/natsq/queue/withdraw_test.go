package queue

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestCancel: the mark of a cancellation says whether the job finishes. A job that no worker has
// received gets its result at once, with its children. A job that a worker has received gets none.
func TestCancel(t *testing.T) {
	c := inside(t)
	ctx := t.Context()
	for _, j := range []jobs.Job{plain("a"), plain("b"), plain("child", "a"), plain("given")} {
		if err := c.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.conn.LastOnce(ctx, wire.JobStream(jobs.PoolCPU),
		wire.SourceOf(plain("child")).Job("child")); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job whose parent is not over is queued: %v", err)
	}
	kv, err := c.conn.JS.KeyValue(ctx, wire.CancelBucket)
	if err != nil {
		t.Fatal(err)
	}
	for id, finish := range map[string]bool{"a": false, "b": true} {
		if err := c.Cancel(ctx, plain(id), finish); err != nil {
			t.Fatal(err)
		}
		if e, err := kv.Get(ctx, id); err != nil ||
			string(e.Value()) != map[bool]string{false: "stop", true: "finish"}[finish] {
			t.Errorf("%s: %v, %v", id, e, err)
		}
		if r, err := c.results.Lookup(ctx, id); (err == nil) == finish || err == nil &&
			(r.Kind != "k" || r.Version != jobs.Version || r.Finished.IsZero()) {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	if r, err := c.results.Lookup(ctx, "child"); err != nil || r.Error == nil || r.Error.Code != jobs.CodeParent {
		t.Errorf("the child of a job that was cancelled: %+v, %v", r, err)
	}
	// All that stands before it is given too.
	cons, err := c.conn.JS.Consumer(ctx, wire.JobStream(jobs.PoolCPU), wire.SourceOf(plain("given")).Consumer())
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.Fetch(2, jetstream.FetchMaxWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for m := range batch.Messages() {
		last = m.Subject()
	}
	if !strings.HasSuffix(last, ".given") {
		t.Fatalf("the last job given out is %s", last)
	}
	if err := c.Cancel(ctx, plain("given"), false); err != nil {
		t.Error(err)
	}
	if r, err := c.results.Lookup(ctx, "given"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job that a worker has: %+v, %v", r, err)
	}
	if _, err := c.conn.LastOnce(ctx, wire.JobStream(jobs.PoolCPU),
		wire.SourceOf(plain("given")).Job("given")); err != nil {
		t.Errorf("a job that a worker has is taken away: %v", err)
	}
	for _, j := range []jobs.Job{
		{ID: "x"},
		{ID: "x", Kind: "a b", Pool: jobs.PoolCPU},
		{ID: "x", Kind: "k", Pool: "tpu"},
	} {
		var e *jobs.Error
		if err := c.Withdraw(ctx, j); !errors.As(err, &e) {
			t.Errorf("%+v: %v", j, err)
		}
	}
	if waiting, err := c.Reclaim(ctx, plain("none")); waiting || err != nil {
		t.Errorf("a job that is not there: %v, %v", waiting, err)
	}
	fresh := plain("fresh") // of a source without a consumer
	fresh.Kind = "other"
	m, _, err := c.Prepare(ctx, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.conn.PublishMsg(ctx, c.conn.RetryIdempotent, "store", m); err != nil {
		t.Fatal(err)
	}
	if waiting, err := c.Reclaim(ctx, fresh); !waiting || err != nil {
		t.Errorf("a job of a source without a consumer: %v, %v", waiting, err)
	}
	delayed := plain("delayed")
	delayed.NotBefore = time.Now().Add(time.Hour)
	if err := c.Submit(ctx, delayed); err != nil {
		t.Fatal(err)
	}
	if waiting, err := c.Reclaim(ctx, delayed); !waiting || err != nil {
		t.Errorf("a delayed job: %v, %v", waiting, err)
	}
}

// TestBatchRules: what a batch may not have, and that it is all or none with parents in it too.
func TestBatchRules(t *testing.T) {
	c := inside(t)
	ctx := t.Context()
	with := func(id string, change func(j *jobs.Job)) jobs.Job {
		j := plain(id)
		change(&j)
		return j
	}
	if err := c.SubmitBatch(ctx, nil); err != nil {
		t.Error(err)
	}
	for name, k := range map[string]struct {
		batch []jobs.Job
		want  string
	}{
		"two pools": {
			[]jobs.Job{plain("a1"), with("a2", func(j *jobs.Job) { j.Pool = jobs.PoolGPU })},
			`job a2 is for pool "gpu", the batch for "cpu": submit them apart`,
		},
		"delayed": {[]jobs.Job{plain("b1"), with("b2",
			func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })}, "job b2 is delayed: submit it alone"},
		"twice": {[]jobs.Job{plain("c1"), plain("c2"), plain("c1")}, "submit 3 jobs: job c1 is in the batch twice"},
		"levels": {
			[]jobs.Job{plain("e1"), with("e2", func(j *jobs.Job) { j.Durability = jobs.DurabilityMemory })},
			"job e2 asks for another level than job e1 of the batch",
		},
		"not valid": {[]jobs.Job{plain("d1"), with("d2", func(j *jobs.Job) { j.Kind = "a b" })}, "kind"},
	} {
		if err := c.SubmitBatch(ctx, k.batch); err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v", name, err)
		}
		if n, first, err := c.countKnown(ctx, k.batch[:1], sourcesOf(k.batch[:1])); n != 0 || first != "" ||
			err != nil {
			t.Errorf("%s: %d are known, the first is %s, %v", name, n, first, err)
		}
	}
	if err := c.SubmitBatch(ctx, []jobs.Job{
		plain("g2", "g1"), plain("g1"),
		with("g3", func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) }),
	}); err != nil {
		t.Errorf("parents and children: %v", err)
	}
	for id, queued := range map[string]bool{"g1": true, "g2": false, "g3": false} {
		if _, err := c.conn.LastOnce(ctx, wire.JobStream(jobs.PoolCPU),
			wire.SourceOf(plain(id)).Job(id)); (err == nil) != queued {
			t.Errorf("%s: %v", id, err)
		}
	}
	nowhere := []jobs.Job{with("x", func(j *jobs.Job) { j.Pool = "none" })}
	if n, _, err := c.countKnown(ctx, nowhere, sourcesOf(nowhere)); n != 0 ||
		err == nil || errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a stream that is not there: %d, %v", n, err)
	}
}

// TestResultsAtOnce: that none of several jobs has a result is known by one question, when there
// are enough of them and one result to go by.
func TestResultsAtOnce(t *testing.T) {
	c := inside(t)
	ctx := t.Context()
	four := []jobs.Job{plain("a"), plain("b"), plain("c"), plain("d")}
	if c.results.NoneAtOnce(ctx, four) {
		t.Error("it is sure without a result to go by")
	}
	put := func(id string) {
		t.Helper()
		if first, err := c.results.Put(ctx, jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done},
			0); !first || err != nil {
			t.Fatal(first, err)
		}
	}
	put("x")
	if !c.results.NoneAtOnce(ctx, four) {
		t.Error("it is not sure")
	}
	if c.results.NoneAtOnce(ctx, four[:3]) {
		t.Error("three are asked for together")
	}
	put("c")
	if c.results.NoneAtOnce(ctx, four) {
		t.Error("the last result is of one of them")
	}
	put("y")
	if c.results.NoneAtOnce(ctx, four) {
		t.Error("one of them has a result")
	}
	others := []jobs.Job{plain("a"), plain("b"), plain("e"), plain("d")}
	if !c.results.NoneAtOnce(ctx, others) {
		t.Error("it is not sure of others")
	}
	c.results.AskEach(time.Now().Add(time.Hour))
	if c.results.NoneAtOnce(ctx, others) {
		t.Error("it asks although it was told not to")
	}
	if err := c.noResults(ctx, others, sourcesOf(others)); err != nil {
		t.Error(err)
	}
	if err := c.noResults(ctx, four, sourcesOf(four)); !errors.Is(err, jobs.ErrExists) ||
		!strings.Contains(err.Error(), "job c has a result") {
		t.Error(err)
	}
	for ttl, want := range map[int]string{
		0:  strconv.Itoa(natsconn.ResultTTL) + "s",
		-1: strconv.Itoa(natsconn.ResultTTL) + "s", 1: "1s", 60: "60s",
	} {
		if m, err := ResultMessage(jobs.Result{JobID: "a"}, ttl); err != nil ||
			m.Header.Get(jetstream.MsgTTLHeader) != want || m.Subject != "exo.res.a" {
			t.Errorf("%d: %+v, %v", ttl, m, err)
		}
	}
	for _, id := range []string{"", "a b", "*"} {
		if _, err := c.results.Lookup(ctx, id); err == nil || errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := c.results.Result(ctx, id); err == nil || errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
