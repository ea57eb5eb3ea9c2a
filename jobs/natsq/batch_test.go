package natsq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestBatchLingers: a batch takes what comes while it waits, closes when it is full or the worker
// ends.
func TestBatchLingers(t *testing.T) {
	t.Parallel()
	c, ctx := connected(t)
	batches := make(chan int, 10)
	w, err := c.Work(ctx, WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Batches: map[string]Batch{
			"k": {Max: 3, Linger: time.Hour, Handle: func(_ context.Context, batch []jobs.Job,
				_ func(int, any),
			) ([]jobs.Outcome, error) {
				batches <- len(batch)
				return make([]jobs.Outcome, len(batch)), nil
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	submit := func(i int) {
		t.Helper()
		if err := c.Queue.Submit(ctx, plain(fmt.Sprint("b", i))); err != nil {
			t.Fatal(err)
		}
	}
	taken := func(n int) { // until a consumer has handed out n jobs more than were acknowledged
		t.Helper()
		for {
			all, _, err := c.Queue.Consumers(ctx, jobs.PoolCPU)
			if err != nil {
				t.Fatal(err)
			}
			if i := all[wire.SourceOf(plain(""))]; i != nil && i.NumAckPending == n && i.NumPending == 0 {
				return
			}
		}
	}
	for i := range 3 {
		submit(i)
		if i < 2 {
			taken(i + 1)
		}
	}
	select {
	case n := <-batches:
		if n != 3 {
			t.Errorf("a batch of %d, want 3", n)
		}
	case <-ctx.Done():
		t.Fatal("a batch that is full does not close")
	}
	if _, err := c.Results.Result(ctx, "b2"); err != nil {
		t.Fatal(err)
	}
	taken(0)
	submit(3)
	for w.Running() == 0 {
		if ctx.Err() != nil {
			t.Fatal("the job was not taken")
		}
	}
	if err := w.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-batches:
		if n != 1 {
			t.Errorf("a batch of %d at the worker's end, want 1", n)
		}
	default:
		t.Error("the worker's end does not end the wait of a batch")
	}
}
