package natsq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestUnfitAgents: a job that agents give back because they are not fit is done once one is, and
// otherwise fails with the last reason after twice its attempts.
func TestUnfitAgents(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	unfit := fmt.Errorf("scratch folder /s is full: %w", jobs.ErrUnfit)
	var tries, never atomic.Int64
	work(t, c, natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"later": func(context.Context, jobs.Job, func(any)) (any, error) {
			if tries.Add(1) < 4 {
				return nil, unfit
			}
			return "done", nil
		},
		"never": func(context.Context, jobs.Job, func(any)) (any, error) {
			never.Add(1)
			return nil, unfit
		},
	}})
	for _, j := range []jobs.Job{
		{Version: jobs.Version, ID: "later", Kind: "later", Pool: jobs.PoolCPU, Spec: []byte(`1`), MaxAttempts: 2},
		{Version: jobs.Version, ID: "never", Kind: "never", Pool: jobs.PoolCPU, Spec: []byte(`1`), MaxAttempts: 1},
	} {
		if err := c.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.Results.Result(ctx, "later"); err != nil || r.Status != jobs.Done || r.Attempts != 4 {
		t.Errorf("a job whose fourth agent is fit: %+v, %v", r, err)
	}
	r, err := c.Results.Result(ctx, "never")
	if err != nil && !errors.As(err, new(*jobs.Error)) {
		t.Fatal(err)
	}
	if r.Status != jobs.Failed || r.Error.Code != jobs.CodeIO ||
		!strings.Contains(r.Error.Message, "could not do it") ||
		!strings.Contains(r.Error.Message, "/s is full") || never.Load() != 2 {
		t.Errorf("a job that no agent is fit for, after %d deliveries: %+v", never.Load(), r.Error)
	}
}
