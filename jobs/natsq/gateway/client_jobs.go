package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// followTurn is how long one request waits at a gateway. It is short, so that a gateway that ends,
// or a lost answer, delays a client by no more.
const followTurn = 20 * time.Second

// List calls fn with the jobs of the tenant in a pool that have not ended, in the order of
// queue.Queue.Jobs, until fn returns false. It reads a page at a time.
func (c *Client) List(ctx context.Context, p jobs.Pool, fn func(queue.ListedJob) bool) error {
	if err := jobs.CheckID("pool", string(p)); err != nil {
		return err
	}
	for from := ""; ; {
		r, _, err := c.ask(ctx, "list."+string(p), map[string]string{"from": from}, 0)
		if err != nil {
			return err
		}
		if r.Listed == nil || r.Next != "" && len(*r.Listed) == 0 {
			return jobs.Errorf(jobs.CodeInternal, "the answer about the jobs of pool %s has no jobs", p)
		}
		for _, j := range *r.Listed {
			if !fn(j) {
				return nil
			}
		}
		if from = r.Next; from == "" {
			return nil
		}
	}
}

// Results calls fn with the newest results of the tenant, without their outputs, until fn returns
// false. It calls fn at most pageJobs times.
func (c *Client) Results(ctx context.Context, fn func(jobs.Result) bool) error {
	r, _, err := c.ask(ctx, "list."+string(jobs.PoolCPU), map[string]bool{"ended": true}, pageTime)
	if err != nil {
		return err
	}
	if r.Ended == nil {
		return jobs.Errorf(jobs.CodeInternal, "the answer about jobs that are over has none: the agents are of an "+
			"earlier version")
	}
	for _, one := range *r.Ended {
		if !fn(one) {
			return nil
		}
	}
	return nil
}

// Logs calls fn with the log lines of a job of the tenant in their order. With follow it waits for
// more lines until the job has ended. It returns the error of fn, if fn returns one.
func (c *Client) Logs(ctx context.Context, id string, follow bool, fn func(jobs.LogLines) error) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	wait := time.Duration(0)
	if follow {
		wait = followTurn
	}
	for from := ""; ; {
		r, _, err := c.ask(ctx, "logs."+id, map[string]any{"from": from, "wait_s": wait.Seconds()}, wait)
		if err != nil {
			return err
		}
		if r.Logs == nil {
			return jobs.Errorf(jobs.CodeInternal, "the answer about the log of job %s has no lines", id)
		}
		for _, l := range *r.Logs {
			if err := fn(l); err != nil {
				return err
			}
		}
		if from = r.Next; from == "" {
			return nil
		}
	}
}

// Watch calls fn with the progress of a job, one call at a time, until the job has a result, and
// returns the result. It omits progress that comes faster than the requests.
func (c *Client) Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Result{}, err
	}
	for {
		r, _, err := c.ask(ctx, "result."+id, map[string]any{"wait_s": followTurn.Seconds(), "progress": true},
			followTurn)
		switch {
		case errors.Is(err, jobs.ErrNotFound): // it has no result yet
		case err != nil:
			return jobs.Result{}, err
		case r.Result != nil:
			return *r.Result, nil
		case r.Progress != nil:
			fn(r.Progress)
		default:
			return jobs.Result{}, jobs.Errorf(jobs.CodeInternal, "the answer about job %s has no result", id)
		}
	}
}

// Retry queues a job of the tenant that failed for good again, under its id. It fails with
// jobs.ErrNotFound if the job has no dead letter.
func (c *Client) Retry(ctx context.Context, id string) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	_, unsure, err := c.ask(ctx, "retry."+id, nil, 0)
	if unsure && errors.Is(err, jobs.ErrNotFound) { // an earlier try may have queued it
		if _, ferr := c.Locate(ctx, id); ferr == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("retry job %s: %w", id, err)
	}
	return nil
}
