package natsq

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestExpireForeign: a queued job that has passed its deadline ends although no worker serves its
// kind; others of the kind stay.
func TestExpireForeign(t *testing.T) {
	t.Parallel()
	c, ctx := connected(t)
	late, fine := plain("late"), plain("fine")
	late.Kind, fine.Kind = "unserved", "unserved"
	late.Deadline = time.Now().Add(50 * time.Millisecond)
	for _, j := range []jobs.Job{late, fine} {
		if err := c.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	w, err := c.Work(ctx, WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return nil, nil },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-time.After(time.Until(late.Deadline)) // the passed deadline is the subject of the test
	d := newDiscovery(c, w.WorkerOptions, newSourceTable(func() {}), w.deps.JobEnded)
	if err := d.look(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.expire(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := c.Results.Lookup(ctx, "late")
	if err != nil || r.Error == nil || r.Error.Code != jobs.CodeDeadline {
		t.Errorf("job late: %+v, %v; want failed with code deadline", r, err)
	}
	awaitQueued(ctx, t, c.Conn, wire.SourceOf(fine), "fine")
	info, err := c.JS.Consumer(ctx, wire.JobStream(jobs.PoolCPU), wire.SourceOf(fine).Consumer())
	if err != nil || info.CachedInfo().Config.InactiveThreshold != time.Hour {
		t.Errorf("the consumer of an unserved kind: %v; want one that the server removes after an hour", err)
	}
}
