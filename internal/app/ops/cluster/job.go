package cluster

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// JobView is a job as it is shown: not over, or its result. Exactly one of Job and Result is set.
type JobView struct {
	ID      string        `json:"id"`
	State   string        `json:"state"` // a queue.JobState, or done, failed or skipped
	Job     *jobs.Job     `json:"job,omitempty"`
	Waits   []string      `json:"waits_for,omitempty"` // jobs that are not over
	Running *jobs.Running `json:"running,omitempty"`
	Note    string        `json:"note,omitempty"` // why it does not run, when that is known
	Result  *jobs.Result  `json:"result,omitempty"`
}

// Listed shows a job that is not over. State is the state in the queue, such as waiting or running.
func Listed(j queue.ListedJob) JobView {
	return JobView{ID: j.ID, State: string(j.State), Job: &j.Job, Waits: j.Waits, Running: j.Running, Note: j.Note}
}

// Over shows a job that is over. Result has its output, which may be large.
func Over(r jobs.Result) JobView { return JobView{ID: r.JobID, State: string(r.Status), Result: &r} }

// Jobs returns at most limit jobs of a pool that are not over, oldest first. With ended it returns
// results of all pools instead, newest first and without their outputs; pool is ignored then. The
// list is never nil. After an error it has what was read before.
func (w *Watcher) Jobs(ctx context.Context, pool string, ended bool, limit int) ([]JobView, error) {
	all := []JobView{}
	if limit <= 0 {
		return all, nil
	}
	if ended {
		err := w.conn.Results.List(ctx, "", func(r jobs.Result) bool {
			r.Output = nil // a list of results may be large
			all = append(all, Over(r))
			return len(all) < limit
		})
		return all, err
	}
	err := w.conn.Queue.List(ctx, jobs.Pool(pool), func(j queue.ListedJob) bool {
		all = append(all, Listed(j))
		return len(all) < limit
	})
	return all, err
}

// Job returns a job; jobs.ErrNotFound where nothing is known of it. The result has its output.
func (w *Watcher) Job(ctx context.Context, id string) (JobView, error) {
	// The result first, and again when the job is not found: it may have ended between the two.
	r, err := w.conn.Results.Lookup(ctx, id)
	if err == nil {
		return Over(r), nil
	}
	if !errors.Is(err, jobs.ErrNotFound) {
		return JobView{}, err
	}
	j, err := w.conn.Queue.Locate(ctx, id)
	if err == nil {
		return Listed(j), nil
	}
	if !errors.Is(err, jobs.ErrNotFound) {
		return JobView{}, err
	}
	if r, err = w.conn.Results.Lookup(ctx, id); err != nil {
		return JobView{}, err
	}
	return Over(r), nil
}

// JobLogs returns the lines that the handlers of a job have logged so far, attempt by attempt. It
// does not wait for more. The list of a job without lines is empty; an unknown id is a
// jobs.ErrNotFound.
func (w *Watcher) JobLogs(ctx context.Context, id string) ([]jobs.LogLines, error) {
	all := []jobs.LogLines{}
	err := w.conn.Logs.Logs(ctx, id, false, func(l jobs.LogLines) error {
		all = append(all, l)
		return nil
	})
	return all, err
}

// Dead returns at most limit dead letters of a pool, oldest first; an empty pool is all of them.
func (w *Watcher) Dead(ctx context.Context, pool string, limit int) ([]jobs.DeadLetter, error) {
	all := []jobs.DeadLetter{}
	if limit <= 0 {
		return all, nil
	}
	err := w.conn.Letters.List(ctx, jobs.DeadFilter{Pool: jobs.Pool(pool)}, func(d jobs.DeadLetter) bool {
		// A list of dead letters shows their headers; the stored jobs may be large.
		d.Data = nil
		all = append(all, d)
		return len(all) < limit
	})
	return all, err
}
