package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// Client submits and follows the jobs of a tenant with requests to gateways. It needs no permission
// but for requests. Its methods take ids with or without the prefix of the tenant ("NAME--"), and
// return them with it. They may be called from several goroutines, and fail with
// jobs.ErrUnavailable if no gateway answers.
type Client struct{ c *natsconn.Conn }

// Connect connects to the server. The options InProcess, Replicas, Lease and Bare have no effect.
// The caller closes the client.
func Connect(ctx context.Context, o natsconn.Options) (*Client, error) {
	c, err := natsconn.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Close ends the connection, and with it all running calls. A second call does nothing.
func (c *Client) Close() { c.c.Close() }

// Lost is closed when the connection was without a server for Options.GiveUp. Without that option
// it is never closed.
func (c *Client) Lost() <-chan struct{} { return c.c.Lost() }

// LostError returns the error of a call that failed with err: that the server was lost, if it was,
// or err.
func (c *Client) LostError(err error) error { return c.c.LostError(err) }

// apiFailed is the error of an answer. It unwraps to the error class that the gateway had.
type apiFailed struct {
	*apiError
	class error
}

// Error implements error.
func (f *apiFailed) Error() string { return f.Message }

// Unwrap returns the class of the error.
func (f *apiFailed) Unwrap() error { return f.class }

// failure is the inverse of apiFailure. It returns nil for nil.
func (e *apiError) failure() error {
	if e == nil {
		return nil
	}
	f := &apiFailed{apiError: e}
	switch e.Code {
	case "exists":
		f.class = jobs.ErrExists
	case "full":
		f.class = jobs.ErrFull
	case "not_found":
		f.class = jobs.ErrNotFound
	case "unavailable":
		f.class = jobs.ErrUnavailable
	default:
		f.class = jobs.Errorf(jobs.Code(e.Code), "%s", e.Message)
	}
	if e.RetryAfter > 0 {
		return jobs.Later(f, time.Duration(e.RetryAfter*float64(time.Second)))
	}
	return f
}

// ask sends a request and returns the answer of a gateway. It repeats the request while no gateway
// answers, or the one that answers ends, for the patience of the connection. unsure reports whether
// an earlier try may have had its effect. wait is how long a gateway may take in addition to a
// round trip.
func (c *Client) ask(ctx context.Context, subject string, body any,
	wait time.Duration,
) (r apiReply, unsure bool, err error) {
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return r, false, fmt.Errorf("ask %s: %w", subject, err)
		}
	}
	request := &nats.Msg{Subject: apiPrefix + subject, Data: data}
	if c.c.Tracer != nil {
		verb, _, _ := strings.Cut(subject, ".")
		var span trace.Span
		ctx, span = c.c.Tracer.Start(ctx, "ask "+apiPrefix+verb, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String(natsconn.AttrSystem, "nats")))
		defer func() { natsconn.EndSpan(span, err) }()
		natsconn.InjectTrace(ctx, request)
	}
	deadline := time.Now().Add(c.c.Patience)
	for tries := 1; ; tries++ {
		var m *nats.Msg
		err = c.c.Do(ctx, func(ctx context.Context) error {
			try, cancel := context.WithTimeout(ctx, wait+10*time.Second)
			defer cancel()
			var err error
			m, err = c.c.NC.RequestMsgWithContext(try, request)
			return err
		})
		if err == nil {
			r = apiReply{}
			if err = json.Unmarshal(m.Data, &r); err != nil {
				return r, unsure, fmt.Errorf("answer to %s: %w", subject, err)
			}
			if err = r.Error.failure(); !errors.Is(err, jobs.ErrUnavailable) {
				return r, unsure, err
			}
		} else if !natsconn.IsTransient(err) {
			return r, unsure, fmt.Errorf("ask an agent to %s: %w", subject, err)
		}
		unsure = unsure || !errors.Is(err, nats.ErrNoResponders)
		if ctx.Err() != nil {
			return r, unsure, fmt.Errorf("ask an agent to %s: %w", subject, context.Cause(ctx))
		}
		if time.Now().After(deadline) {
			return r, unsure, fmt.Errorf("no agent answers requests for %v (%w): start one (cpuagent): %w",
				c.c.Patience, err, jobs.ErrUnavailable)
		}
		t := time.NewTimer(min(time.Duration(tries)*50*time.Millisecond, time.Second))
		select {
		case <-t.C:
		case <-ctx.Done(): // the next try returns its cause
			t.Stop()
		}
	}
}

// submission returns a job as a gateway accepts it: without the version, and without the default
// tenant, so that it gets the tenant of the login.
func submission(j jobs.Job) jobs.Job {
	j.Version = 0
	if j.Tenant == jobs.DefaultTenant {
		j.Tenant = ""
	}
	return j
}

// Submit stores a job with an id of the caller, and returns its id with the prefix of the tenant.
// It returns the errors of queue.Queue.Submit. A job without a tenant gets the tenant of the login.
func (c *Client) Submit(ctx context.Context, j jobs.Job) (id string, err error) {
	r, unsure, err := c.ask(ctx, apiSubmit, submission(j), 0)
	if unsure && errors.Is(err, jobs.ErrExists) { // an earlier try stored it, and its answer was lost
		err = nil
	}
	return r.Job, err
}

// SubmitBatch stores at most jobs.MaxBatch jobs, all or none, and returns their ids; see
// queue.Queue.SubmitBatch. If the answer of a try is lost, the repeated try fails with
// jobs.ErrExists.
func (c *Client) SubmitBatch(ctx context.Context, batch []jobs.Job) (ids []string, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	all := make([]jobs.Job, len(batch))
	for i, j := range batch {
		all[i] = submission(j)
	}
	r, _, err := c.ask(ctx, apiSubmit, all, 0)
	return r.Jobs, err
}

// Lookup returns the result of a job. It fails with jobs.ErrNotFound while the job has none.
func (c *Client) Lookup(ctx context.Context, id string) (jobs.Result, error) {
	return c.result(ctx, id, 0)
}

// result is one request for a result, which waits at the gateway.
func (c *Client) result(ctx context.Context, id string, wait time.Duration) (jobs.Result, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Result{}, err
	}
	r, _, err := c.ask(ctx, "result."+id, map[string]float64{"wait_s": wait.Seconds()}, wait)
	if err != nil {
		return jobs.Result{}, err
	}
	if r.Result == nil {
		return jobs.Result{}, jobs.Errorf(jobs.CodeInternal, "the answer about job %s has no result", id)
	}
	return *r.Result, nil
}

// Result waits until a job has a result, and returns it. The error is nil for a job that has
// failed; the result says so.
func (c *Client) Result(ctx context.Context, id string) (jobs.Result, error) {
	for {
		r, err := c.result(ctx, id, followTurn)
		if !errors.Is(err, jobs.ErrNotFound) {
			return r, err
		}
	}
}

// Locate returns a job that has not ended, with its state. It fails with jobs.ErrNotFound if there
// is none of that id.
func (c *Client) Locate(ctx context.Context, id string) (queue.ListedJob, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return queue.ListedJob{}, err
	}
	r, _, err := c.ask(ctx, "find."+id, nil, 0)
	if err != nil {
		return queue.ListedJob{}, err
	}
	if r.Queued == nil {
		return queue.ListedJob{}, jobs.Errorf(jobs.CodeInternal, "the answer about job %s has no job", id)
	}
	return *r.Queued, nil
}

// Cancel asks for a job to end, see queue.Queue.Cancel. It returns nil for a job that has ended.
func (c *Client) Cancel(ctx context.Context, id string, finish bool) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	_, _, err := c.ask(ctx, "cancel."+id, map[string]bool{"finish": finish}, 0)
	return err
}

// AddSchedule stores a schedule. It fails with jobs.ErrExists if the tenant has one of that name.
func (c *Client) AddSchedule(ctx context.Context, s jobs.Schedule) error {
	s.Job = submission(s.Job)
	_, unsure, err := c.ask(ctx, "cron.add", s, 0)
	if unsure && errors.Is(err, jobs.ErrExists) {
		err = nil
	}
	return err
}

// Schedules returns the schedules of the tenant in the order of their names.
func (c *Client) Schedules(ctx context.Context) ([]jobs.ScheduleState, error) {
	r, _, err := c.ask(ctx, "cron.list", nil, 0)
	if err != nil || r.Schedules == nil {
		return nil, err
	}
	return *r.Schedules, nil
}

// RemoveSchedule ends a schedule, see queue.Schedules.RemoveSchedule.
func (c *Client) RemoveSchedule(ctx context.Context, name string) error {
	return c.change(ctx, "remove", name)
}

// PauseSchedule stops a schedule if on is true, and otherwise resumes it.
func (c *Client) PauseSchedule(ctx context.Context, name string, on bool) error {
	if on {
		return c.change(ctx, "pause", name)
	}
	return c.change(ctx, "resume", name)
}

func (c *Client) change(ctx context.Context, verb, name string) error {
	if err := jobs.CheckID("schedule", name); err != nil {
		return err
	}
	_, _, err := c.ask(ctx, "cron."+verb+"."+name, nil, 0)
	return err
}
