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

// followTurn is how long one request of a client waits, because one of the hands of a gateway is
// held meanwhile.
const followTurn = 20 * time.Second

// List calls fn with the tenant's jobs of a pool that are not over, in the order of Conn.Jobs,
// until fn returns false. It reads a page at a time.
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

// Results calls fn with the results of the tenant's newest jobs, without their outputs, until fn
// returns false. There are at most pageJobs of them.
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

// Logs is Conn.Logs for a job of the tenant.
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

// Watch calls fn with the progress of a job as it comes, one call at a time, until the job has a
// result, and returns that. Progress that comes faster than it is asked for is left out.
func (c *Client) Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Result{}, err
	}
	for {
		r, _, err := c.ask(ctx, "result."+id, map[string]any{"wait_s": followTurn.Seconds(), "progress": true},
			followTurn)
		switch {
		case errors.Is(err, jobs.ErrNotFound): // not yet
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

// Retry queues a job of the tenant that failed for good anew, under its id; jobs.ErrNotFound when
// it has no dead letter.
func (c *Client) Retry(ctx context.Context, id string) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	_, unsure, err := c.ask(ctx, "retry."+id, nil, 0)
	if unsure && errors.Is(err, jobs.ErrNotFound) { // by the try whose answer was lost, or there was none
		if _, ferr := c.Locate(ctx, id); ferr == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("retry job %s: %w", id, err)
	}
	return nil
}
