package natsq

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestStuckJobs: a job that the consumer is past and that has its result leaves the queue at the
// second call of look. Nothing else does.
func TestStuckJobs(t *testing.T) {
	c, ctx := connected(t)
	ids := []string{"over", "open", "later"}
	for _, id := range ids {
		if err := c.Queue.Submit(ctx, plain(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"over", "later"} {
		if _, err := c.Results.Put(ctx, jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done},
			60); err != nil {
			t.Fatal(err)
		}
	}
	s := wire.SourceOf(plain("over"))
	stuck := newStuckJobs(c, jobstest.Quiet)
	past := &jetstream.ConsumerInfo{Delivered: jetstream.SequenceInfo{Stream: 2}} // "later" is yet to come
	busy := &jetstream.ConsumerInfo{Delivered: jetstream.SequenceInfo{Stream: 2}, NumAckPending: 1}
	for n, look := range []struct {
		info *jetstream.ConsumerInfo
		left []string
	}{
		{past, ids},
		{busy, ids}, // a worker has a job again: the next call counts as the first
		{past, ids},
		{past, ids[1:]},
		{past, ids[1:]},
		{past, ids[1:]},
	} {
		if err := stuck.look(ctx, s, look.info); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			_, err := c.LastOnce(ctx, s.Stream(), s.Job(id))
			want := error(nil)
			if id == "over" && len(look.left) == 2 {
				want = jobs.ErrNotFound
			}
			if !errors.Is(err, want) {
				t.Fatalf("look %d: job %s: %v, want %v", n, id, err, want)
			}
		}
	}
}
