package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// natsFlag adds the flags of a connection.
func natsFlag(f *pflag.FlagSet) {
	command.NATSFlags(f, false)
	patienceFlag(f)
}

// patienceFlag adds --patience. Its default ends a command within 5 s of the loss of its server.
func patienceFlag(f *pflag.FlagSet) {
	f.Duration("patience", 4*time.Second, "how long the NATS server may be away before the command ends, 1s or more")
}

// natsOptions reads the flags of a connection.
func natsOptions(cmd *cobra.Command, tracing *command.Tracing) (natsconn.Options, error) {
	o := natsconn.Options{Name: strings.TrimSpace("exoswarm " + cmd.Name())}
	o.URL, o.Login = command.NATS(cmd)
	if tracing != nil {
		o.Tracing = tracing.Provider()
	}
	var err error
	o.GiveUp, err = patience(cmd)
	return o, err
}

// patience reads --patience.
func patience(cmd *cobra.Command) (time.Duration, error) {
	d, _ := cmd.Flags().GetDuration("patience")
	if d < time.Second {
		return 0, command.Usage("--patience %v: use 1s or more", d)
	}
	return d, nil
}

// closeAfter is how long a command that was interrupted may still use its connection. Some calls of
// the client end with it only.
const closeAfter = 2 * time.Second

// connected makes a command's RunE of a function that needs a connection.
func connected(fn func(cmd *cobra.Command, args []string, c *natsq.Conn) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		tracing, err := newTracing(cmd)
		if err != nil {
			return err
		}
		defer tracing.Close()
		o, err := natsOptions(cmd, tracing)
		if err != nil {
			return err
		}
		cmd.SetContext(tracing.Context(cmd.Context()))
		c, err := natsq.Connect(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer c.Close()
		return within(cmd, c, func() error { return fn(cmd, args, c) })
	}
}

// within runs a command until it ends or its server is lost, and says so then.
func within(cmd *cobra.Command, l command.Link, fn func() error) error {
	ctx, stop := command.WithLink(cmd.Context(), l)
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	defer context.AfterFunc(cmd.Context(), func() {
		late := time.NewTimer(closeAfter)
		defer late.Stop()
		select {
		case <-late.C:
			l.Close()
		case <-ended:
		}
	})()
	cmd.SetContext(ctx)
	return l.LostError(fn())
}

// submitter is what those need who submit jobs and follow them.
type submitter interface {
	// Submit and SubmitBatch return the ids that the jobs have, which may not be those that they
	// were given.
	Submit(ctx context.Context, j jobs.Job) (id string, err error)
	SubmitBatch(ctx context.Context, batch []jobs.Job) (ids []string, err error)
	resultReader
	// Locate returns a job that is not over, and where it stands.
	Locate(ctx context.Context, id string) (queue.ListedJob, error)
	// Watch returns a job's result, and calls fn with its progress until then, one call at a time.
	Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error)
	// List calls fn with the jobs of a pool that are not over until fn returns false.
	List(ctx context.Context, p jobs.Pool, fn func(queue.ListedJob) bool) error
	// Results calls fn with the results of jobs that are over, newest first, until fn returns
	// false.
	Results(ctx context.Context, fn func(jobs.Result) bool) error
	logReader
	Cancel(ctx context.Context, id string, finish bool) error
	// Retry queues a job that failed for good anew; jobs.ErrNotFound when it has no dead letter.
	Retry(ctx context.Context, id string) error
	scheduler
}

// resultReader looks up the result of a job, or waits for it.
type resultReader interface {
	Lookup(ctx context.Context, id string) (jobs.Result, error)
	Result(ctx context.Context, id string) (jobs.Result, error)
}

// logReader reads the log lines of a job.
type logReader interface {
	Logs(ctx context.Context, id string, follow bool, fn func(jobs.LogLines) error) error
}

// scheduler adds and removes schedules.
type scheduler interface {
	AddSchedule(ctx context.Context, s jobs.Schedule) error
	Schedules(ctx context.Context) ([]jobs.ScheduleState, error)
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string, on bool) error
}

var (
	_ submitter = direct{}
	_ submitter = (*gateway.Client)(nil)
)

// direct is a submitter who may reach the queue itself.
type direct struct {
	*queue.Queue
	resultReader
	scheduler
	logReader
	conn *natsq.Conn
}

func (d direct) Submit(ctx context.Context, j jobs.Job) (string, error) {
	if err := d.conn.Registry.CheckPools(ctx, j); err != nil {
		return j.ID, err
	}
	return j.ID, d.Queue.Submit(ctx, j)
}

func (d direct) SubmitBatch(ctx context.Context, batch []jobs.Job) ([]string, error) {
	ids := make([]string, len(batch))
	for i, j := range batch {
		ids[i] = j.ID
	}
	if err := d.conn.Registry.CheckPools(ctx, batch...); err != nil {
		return ids, err
	}
	return ids, d.Queue.SubmitBatch(ctx, batch)
}

func (d direct) Results(ctx context.Context, fn func(jobs.Result) bool) error {
	return d.conn.Results.List(ctx, "", fn)
}

func (d direct) Cancel(ctx context.Context, id string, finish bool) error {
	j, err := d.Find(ctx, id)
	if err != nil {
		return err
	}
	return d.Queue.Cancel(ctx, j, finish)
}

func (d direct) Watch(ctx context.Context, id string, fn func(json.RawMessage)) (jobs.Result, error) {
	stop, err := d.conn.Results.Progress(id, fn)
	if err != nil {
		return jobs.Result{}, err
	}
	defer stop()
	return d.Result(ctx, id)
}

func (d direct) Retry(ctx context.Context, id string) error {
	n, err := redrive(ctx, d.conn, jobs.DeadFilter{ID: id})
	if err == nil && n == 0 {
		err = fmt.Errorf("job %s has no dead letter: only a job that failed for good can be tried again: %w", id,
			jobs.ErrNotFound)
	}
	return err
}

// submitting is connected for a function that a tenant's login will do for, which reaches the queue
// through the agents only.
func submitting(fn func(cmd *cobra.Command, args []string, c submitter) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		tracing, err := newTracing(cmd)
		if err != nil {
			return err
		}
		defer tracing.Close()
		o, err := natsOptions(cmd, tracing)
		if err != nil {
			return err
		}
		cmd.SetContext(tracing.Context(cmd.Context()))
		c, err := natsq.Connect(cmd.Context(), o)
		if errors.Is(err, jobs.ErrDenied) { // the queue itself is not for this login
			c, err := gateway.Connect(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer c.Close()
			return within(cmd, c, func() error { return fn(cmd, args, c) })
		}
		if err != nil {
			return err
		}
		defer c.Close()
		return within(cmd, c, func() error { return fn(cmd, args, direct{c.Queue, c.Results, c.Schedules, c.Logs, c}) })
	}
}

// newTracing reads the OTEL_* variables for a command, which reports on stderr.
func newTracing(cmd *cobra.Command) (*command.Tracing, error) {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return command.NewTracing(cmd.Context(), "exoswarm", command.AgentName(cmd.Name()), log)
}

// poolOf reads a pool from the command line.
func poolOf(text string) (jobs.Pool, error) {
	if p := jobs.Pool(text); p == jobs.PoolCPU || p == jobs.PoolGPU {
		return p, nil
	}
	return "", command.Usage("pool %q: use cpu or gpu", text)
}
