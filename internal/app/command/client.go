package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// ConnectClient connects to the queue or, when the login may not use that, to the gateway. The
// caller closes the link after the last call.
func ConnectClient(ctx context.Context, o natsconn.Options) (JobClient, Link, error) {
	conn, err := natsq.Connect(ctx, o)
	if errors.Is(err, jobs.ErrDenied) {
		c, err := gateway.Connect(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		return c, c, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return DirectClient(conn), conn, nil
}

// DirectClient returns a client that uses the queue itself. The connection stays the caller's.
func DirectClient(conn *natsq.Conn) JobClient {
	return direct{conn.Queue, conn.Results, conn.Schedules, conn.Logs, conn}
}

// JobClient submits jobs and follows them. Its methods may be called from several goroutines.
// Errors wrap errors of package jobs, such as jobs.ErrNotFound for an unknown id.
type JobClient interface {
	// Submit submits a job and returns its id, which the gateway of a tenant may choose.
	Submit(ctx context.Context, j jobs.Job) (id string, err error)
	// SubmitBatch submits jobs of one pool, all or none, and returns their ids in the same order.
	SubmitBatch(ctx context.Context, batch []jobs.Job) (ids []string, err error)
	resultReader
	// Locate returns a job that is not over, with its state.
	Locate(ctx context.Context, id string) (queue.ListedJob, error)
	// Watch returns a job's result, and calls fn with its progress until then, one call at a time.
	Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error)
	// List calls fn with the jobs of a pool that are not over until fn returns false.
	List(ctx context.Context, p jobs.Pool, fn func(queue.ListedJob) bool) error
	// Results calls fn with the results of jobs that are over, newest first, until fn returns
	// false.
	Results(ctx context.Context, fn func(jobs.Result) bool) error
	logReader
	// Cancel ends a job that waits or runs. With finish it completes the work in hand first.
	Cancel(ctx context.Context, id string, finish bool) error
	// Retry queues a job again that failed for good; jobs.ErrNotFound when it has no dead letter.
	Retry(ctx context.Context, id string) error
	scheduler
}

type resultReader interface {
	// Lookup returns the result of a job that is over; jobs.ErrNotFound for other ids.
	Lookup(ctx context.Context, id string) (jobs.Result, error)
	// Result waits for the result of a job.
	Result(ctx context.Context, id string) (jobs.Result, error)
}

type logReader interface {
	// Logs calls fn with the lines of a job, attempt by attempt. With follow it returns when the
	// job is over.
	Logs(ctx context.Context, id string, follow bool, fn func(jobs.LogLines) error) error
}

type scheduler interface {
	AddSchedule(ctx context.Context, s jobs.Schedule) error
	Schedules(ctx context.Context) ([]jobs.ScheduleState, error)
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string, on bool) error
}

var (
	_ JobClient = direct{}
	_ JobClient = (*gateway.Client)(nil)
)

// direct is a client with a login that may use the queue itself.
type direct struct {
	*queue.Queue
	resultReader
	scheduler
	logReader
	conn *natsq.Conn
}

// QueueOf returns the connection of a client that uses the queue itself; nil for one that asks the
// gateway of the agents.
func QueueOf(c JobClient) *natsq.Conn {
	if d, ok := c.(direct); ok {
		return d.conn
	}
	return nil
}

// JobFailed returns the error of a job that failed. It names the job once, also if the cause begins
// with it.
func JobFailed(id string, cause *jobs.Error) error {
	once := *cause
	once.Message = strings.TrimPrefix(cause.Message, "job "+id+": ")
	return fmt.Errorf("job %s failed: %w", id, &once)
}

// Submit implements Client.
func (d direct) Submit(ctx context.Context, j jobs.Job) (string, error) {
	return j.ID, d.Queue.Submit(ctx, j)
}

// SubmitBatch implements Client.
func (d direct) SubmitBatch(ctx context.Context, batch []jobs.Job) ([]string, error) {
	ids := make([]string, len(batch))
	for i, j := range batch {
		ids[i] = j.ID
	}
	return ids, d.Queue.SubmitBatch(ctx, batch)
}

// Object opens an object of the store, for outputs that are no part of a result. The caller closes
// the reader.
func (d direct) Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error) {
	return d.conn.Objects.Object(ctx, name, of)
}

// Results implements Client.
func (d direct) Results(ctx context.Context, fn func(jobs.Result) bool) error {
	return d.conn.Results.List(ctx, "", fn)
}

// Cancel implements Client.
func (d direct) Cancel(ctx context.Context, id string, finish bool) error {
	j, err := d.Find(ctx, id)
	if err != nil {
		return err
	}
	return d.Queue.Cancel(ctx, j, finish)
}

// Watch implements Client.
func (d direct) Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error) {
	stop, err := d.conn.Results.Progress(id, fn)
	if err != nil {
		return jobs.Result{}, err
	}
	defer stop()
	return d.Result(ctx, id)
}

// Retry implements Client.
func (d direct) Retry(ctx context.Context, id string) error {
	n, err := Redrive(ctx, d.conn.Letters, jobs.DeadFilter{ID: id})
	if err == nil && n == 0 {
		err = fmt.Errorf("job %s has no dead letter: only a job that failed for good can be tried again: %w", id,
			jobs.ErrNotFound)
	}
	return err
}
