package queue_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestRedriveBeforeRemoval: a worker has stored the letter of a job and not yet removed the job
// from its queue, or has removed a waiting job and not its edges. A redrive at that moment queues
// the job, and the removal does not lose it. A second call of the same redrive, and the redrive of
// an older letter, leave what is queued.
func TestRedriveBeforeRemoval(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	for _, kind := range []string{"queued", "waits", "edges"} {
		parent, j := jobstest.Job(kind+"-parent", "k"), jobstest.Job(kind, "k")
		code := jobs.CodeInput
		stream, subject := wire.JobStream(j.Pool), wire.SourceOf(j.WithDefaults()).Job(j.ID)
		if kind != "queued" {
			code = jobs.CodeParent
			j.After = []string{parent.ID}
			if err := c.queue.Submit(ctx, parent); err != nil {
				t.Fatal(err)
			}
			stream, subject = wire.WaitStream, wire.SourceOf(j.WithDefaults()).Wait(j.ID)
		}
		if err := c.queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
		old, err := c.conn.Last(ctx, stream, subject)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(ctx, c.conn.RetryIdempotent, queue.StoredLetter{
			Source: wire.SourceOf(j.WithDefaults()), ID: j.ID, Data: old.Data, Reason: jobs.Errorf(code, "no good"),
		}); err != nil {
			t.Fatal(err)
		}
		var d jobs.DeadLetter
		if err := c.List(ctx, jobs.DeadFilter{ID: j.ID},
			func(one jobs.DeadLetter) bool { d = one; return true }); err != nil {
			t.Fatal(err)
		}
		if kind == "edges" {
			if err := c.conn.Remove(ctx, stream, old.Seq); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := c.Redrive(ctx, d); err != nil {
				t.Fatal(err)
			}
			if err := c.conn.Remove(ctx, stream, old.Seq); err != nil { // what the worker does
				t.Fatal(err)
			}
		}
		again, err := c.conn.Last(ctx, stream, subject)
		if err != nil {
			t.Fatalf("%s: the redriven job is lost: %v", kind, err)
		}
		if again.Seq == old.Seq {
			t.Fatalf("%s: the job is at %d, as before", kind, again.Seq)
		}
		if missing, err := c.queue.Missing(ctx, j); err != nil || len(missing) != len(j.After) {
			t.Errorf("%s: it waits for %v, %v", kind, missing, err)
		}
		if kind == "queued" { // submitted by a client since: another time of submission
			if err := c.conn.Remove(ctx, stream, again.Seq); err != nil {
				t.Fatal(err)
			}
			newer := jobstest.Job(kind, "k")
			newer.Spec = []byte("2")
			if err := c.queue.Submit(ctx, newer); err != nil {
				t.Fatal(err)
			}
			if err := c.Redrive(ctx, d); err != nil {
				t.Fatal(err)
			}
			kept, err := c.conn.Last(ctx, stream, subject)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := jobs.DecodeJob(kept.Data); err != nil || string(got.Spec) != "2" {
				t.Errorf("a newer job was replaced: %+v, %v", got, err)
			}
		}
	}
}
