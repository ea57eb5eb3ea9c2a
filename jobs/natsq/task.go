package natsq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// task is one delivery of a job to a worker, until the job is settled, tried again or given back.
type task struct {
	m       *nats.Msg
	src     wire.Source
	id      string // the last token of the subject, which identifies the job; empty if it is not valid
	job     jobs.Job
	attempt int       // the first is 1
	began   time.Time // when the handler began; before that, when the task began
	queued  time.Time // when the server stored the job, by its clock
	log     *slog.Logger
	span    trace.Span    // of this attempt
	shown   *jobs.Running // to those who ask what runs; nil before the handler

	logOnce sync.Once
	logger  *slog.Logger // see Worker.logger
	lines   *queue.LogLines

	forgiven uint64 // cancellations up to this revision were before a redrive, and do not count
}

// open reads a delivery. It returns nil when there is nothing to run: a message that is not a job
// becomes a dead letter, and a job that must not run is settled or given back.
func (w *Worker) open(ctx context.Context, m *nats.Msg) (opened *task) {
	t := &task{m: m, attempt: 1, began: time.Now(), log: w.Logger, span: tracing.NoSpan}
	if meta, err := m.Metadata(); err == nil {
		t.attempt, t.queued = int(meta.NumDelivered), meta.Timestamp
	}
	var ok bool
	if t.src, t.id, ok = wire.ParseSubject(m.Subject); !ok {
		// Consumers of the queue have filters that exclude such a subject.
		w.drop(t, jobs.Errorf(jobs.CodeInvalid, "a job on the subject %.100q", m.Subject))
		return nil
	}
	t.span = w.c.processing(ctx, t)
	ctx = w.c.WithSpan(ctx, t.span)
	defer func() {
		if opened == nil {
			t.span.End()
		}
	}()
	t.forgiven, _ = strconv.ParseUint(m.Header.Get(queue.HeaderForgiven), 10, 64) // only redriven jobs have it
	t.log = w.Logger.With("job", t.id, "kind", t.src.Kind, "attempt", t.attempt)
	if err := jobs.CheckID("job id", t.id); err != nil {
		t.id = "" // no result can have such an id
		w.settle(ctx, t, nil, err)
		return nil
	}
	if t.attempt > 1 {
		// A worker had the job before, and may have stored the result.
		r, err := w.c.Results.Lookup(ctx, t.id)
		switch {
		case err == nil:
			w.finished(ctx, t, r)
			return nil
		case !errors.Is(err, jobs.ErrNotFound):
			w.giveBack(t, 0)
			return nil
		}
	}
	job, err := jobs.DecodeJob(m.Data)
	if err == nil && (job.ID != t.id || wire.SourceOf(job) != t.src.At("")) {
		err = jobs.Errorf(jobs.CodeInvalid, "job %s stands on subject %s: the subject must be %s", job.ID, m.Subject,
			wire.SourceOf(job).At(t.src.Level).Job(job.ID))
	}
	t.job = queue.WithLevel(job.WithDefaults(), m.Header)
	t.job.LastAttempt = t.attempt >= t.job.MaxAttempts
	if err == nil {
		err = w.mustRun(t)
	}
	if err == nil && t.job.SpecRef != nil {
		if t.job.Spec, err = w.c.Queue.Spec(ctx, t.job.SpecRef); jobs.Retryable(err) && !t.job.LastAttempt {
			w.retry(t, err)
			return nil
		}
	}
	if err != nil {
		w.settle(ctx, t, nil, err)
		return nil
	}
	return t
}

// removeSwarm removes the swarm of a job that ends as failed. A handler keeps the swarm when it
// returns an error after which the job may be tried again, so the swarm of an earlier attempt may
// exist even if this attempt did not run. If the removal fails, the swarm is an orphan, which a
// sweep removes.
func (w *Worker) removeSwarm(ctx context.Context, t *task) {
	ctx, cancel := context.WithTimeout(ctx, removeSwarmTimeout)
	defer cancel()
	s, err := w.c.Swarms.Swarm(ctx, t.id)
	if err == nil && s.OwnerJob() == t.id {
		err = w.c.Swarms.RemoveSwarm(ctx, s)
	}
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		t.log.Warn("the swarm of an earlier attempt was not removed", "error", err)
	}
}

// removeSwarmTimeout is shorter than the lease of a job.
const removeSwarmTimeout = 5 * time.Second

// mustRun returns nil, or the error with which the job ends without a run.
func (w *Worker) mustRun(t *task) error {
	switch {
	case errors.Is(w.ctl.cause(t.id, t.forgiven), jobs.ErrCancelled):
		return fmt.Errorf("job %s: %w", t.id, jobs.ErrCancelled)
	case !t.job.Deadline.IsZero() && time.Now().After(t.job.Deadline):
		return fmt.Errorf("job %s was not begun by %s: %w", t.id, t.job.Deadline.Format(time.RFC3339), jobs.ErrDeadline)
	case t.attempt > mostDeliveries(t.job):
		return jobs.Errorf(jobs.CodeInternal, "job %s was given out %d times and no worker has lived to end it", t.id,
			t.attempt-1)
	}
	return nil
}

// mostDeliveries returns how often a job is delivered at most. It is more than the attempts,
// because workers that drain, or cannot execute jobs for now, give jobs back without an attempt.
func mostDeliveries(j jobs.Job) int { return 2 * j.MaxAttempts }

// do runs one job and ends its delivery. ctx is the context of the worker, which ends at Drain.
func (w *Worker) do(ctx context.Context, m *nats.Msg) {
	defer w.release(m)
	base := context.WithoutCancel(ctx)
	t := w.open(base, m)
	if t == nil {
		return
	}
	defer t.span.End()
	defer w.endLog(t)
	base = w.c.WithSpan(base, t.span)
	run, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	run = jobs.WithLoggers(run, func(int) *slog.Logger { return w.logger(t) })
	run, stop := withDeadline(run, t.job.Deadline)
	defer stop()
	w.heartbeats.OnLost(m, func(cause error) {
		w.Metrics.leaseLost(t.src)
		cancel(cause)
	})
	detach := w.ctl.attach(t.id, t.forgiven, cancel)
	defer detach()
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })() // drain or stop of the worker
	t.log.Info("job started")
	t.shown = w.current.begin(t.id, t.attempt, w.Name)
	defer w.current.end(t.shown)
	t.began = time.Now()
	w.Metrics.started(t.src, t.attempt, t.queued, t.span)
	output, err := protect(func() (any, error) {
		return w.Handlers[t.src.Kind](run, t.job, func(v any) { w.progress(t, v) })
	})
	w.Metrics.ended(t.src, t.began, t.span)
	w.conclude(base, t, output, err, context.Cause(run), ctx.Err() != nil)
}

// release ends the heartbeat, the slot and the wait for an acknowledgement of a delivery. If the
// job is not settled by then, the queue delivers it again when its lease ends. A second call does
// nothing.
func (w *Worker) release(m *nats.Msg) {
	w.heartbeats.Drop(m)
	w.acks.Returned(m)
	w.limits.End(m)
}

// withDeadline ends ctx with jobs.ErrDeadline, unless the time is zero.
func withDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if at.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, at, jobs.ErrDeadline)
}

// conclude decides how a task ends after its handler returned: settle, retry, give back, or leave
// it to its lease. cause is why the context of the handler ended, nil if it did not. ending reports
// whether the worker drains.
func (w *Worker) conclude(ctx context.Context, t *task, output any, err, cause error, ending bool) {
	switch {
	case err == nil:
	case errors.Is(cause, jobs.ErrCancelled):
		// The code says so, whatever code the error of the handler has.
		err = jobs.Errorf(jobs.CodeCanceled, "%v: %v", jobs.ErrCancelled, err)
	case errors.Is(cause, jobs.ErrDeadline):
		err = fmt.Errorf("job %s was not done by %s: %w", t.id, t.job.Deadline.Format(time.RFC3339), jobs.ErrDeadline)
	case ending:
		w.lastLine(t).Info(jobs.LogGivenBack, "error", err)
		outcome(t.span, "given_back", nil)
		w.giveBack(t, 0)
		return
	case cause != nil && !errors.Is(cause, jobs.ErrFinish):
		// The worker is unhealthy. The queue delivers the job to another one when the lease ends.
		t.log.Warn("job abandoned", "error", err)
		outcome(t.span, "abandoned", err)
		return
	case errors.Is(err, jobs.ErrUnfit) && t.attempt >= mostDeliveries(t.job):
		// Each of these agents was ready before it had the job, so the job needs more than they
		// have.
		err = jobs.Errorf(jobs.CodeIO, "job %s was given to agents %d times that could not do it, the last one "+
			"because of: %v", t.id, t.attempt, err)
	case errors.Is(err, jobs.ErrUnfit):
		w.lastLine(t).Warn(jobs.LogGivenBack, "error", err, "reason", "this agent cannot do jobs for now", "pause",
			queue.FirstPause)
		outcome(t.span, "given_back", err)
		w.giveBack(t, queue.FirstPause)
		return
	case errors.Is(err, jobs.ErrFenced):
		// Another attempt of the job writes to the same log, and its outcome counts. If that
		// attempt has ended too, the queue delivers the job again when the lease ends.
		t.log.Warn("job left to another attempt of it", "error", err)
		outcome(t.span, "abandoned", err)
		return
	case jobs.Retryable(err) && !t.job.LastAttempt:
		w.retry(t, err)
		return
	}
	w.settle(ctx, t, output, err)
}

func (w *Worker) retry(t *task, err error) {
	pause := queue.Backoff(t.attempt)
	w.lastLine(t).Warn(jobs.LogNextAttempt, "error", err, "pause", pause)
	w.Metrics.retried(t.src)
	outcome(t.span, "retried", err)
	w.giveBack(t, pause)
}

// giveBack returns a job to the queue, which delivers it again after the pause. If the message to
// the server is lost, the end of the lease has the same effect.
func (w *Worker) giveBack(t *task, pause time.Duration) {
	w.release(t.m)
	var err error
	if pause > 0 {
		err = t.m.NakWithDelay(pause)
	} else {
		err = t.m.Nak()
	}
	if err != nil {
		t.log.Warn("job not given back", "error", err)
	}
}

// drop removes a message from the queue that is not a job.
func (w *Worker) drop(t *task, err error) {
	w.Logger.Error("message dropped", "error", err)
	w.release(t.m)
	if rerr := t.m.Respond([]byte("+TERM " + err.Error())); rerr != nil {
		w.Logger.Warn("message not dropped", "error", rerr)
	}
}

// makeResult returns the result of a task with an output or an error. An output that is not JSON,
// or is too large, becomes an error.
func (w *Worker) makeResult(t *task, output any, err error) jobs.Result {
	r := jobs.Result{
		Version: jobs.Version, JobID: t.id, Kind: t.src.Kind, Status: jobs.Done,
		Attempts: t.attempt, Worker: w.Name, Finished: time.Now().UTC(),
	}
	if err == nil {
		if r.Output, err = json.Marshal(output); err != nil {
			err = jobs.Errorf(jobs.CodeInternal, "job %s: its output is not JSON: %v", t.id, err)
		} else if len(r.Output) > jobs.MaxMessage-4096 {
			err = jobs.Errorf(jobs.CodeInternal, "job %s: an output of %d bytes: put bulk data into the object "+
				"store and return its name", t.id, len(r.Output))
		}
	}
	if err != nil {
		r.Status, r.Error, r.Output = jobs.Failed, jobs.AsError(err), nil
		if len(r.Error.Message) > maxMessage {
			r.Error.Message = r.Error.Message[:maxMessage] + " …"
		}
	}
	return r
}

const maxMessage = 64 << 10

// settle stores the result of a job, unless it has one, and removes the job from the queue.
func (w *Worker) settle(ctx context.Context, t *task, output any, err error) {
	if err != nil && t.id != "" {
		w.removeSwarm(ctx, t)
	}
	w.settleResult(ctx, t, w.makeResult(t, output, err))
}

func (w *Worker) settleResult(ctx context.Context, t *task, r jobs.Result) {
	ctx = w.c.WithSpan(ctx, t.span)
	if t.id == "" {
		w.finished(ctx, t, r)
		return
	}
	first, err := w.c.Results.Store(ctx, w.retryWhileFull, r, t.job.ResultTTL)
	w.stored(ctx, t, r, first, err)
}

// stored continues after the result of a task was stored (first), refused because the job has one,
// or not stored (err).
func (w *Worker) stored(ctx context.Context, t *task, r jobs.Result, first bool, err error) {
	if err != nil {
		t.log.Error("result not stored; the job will be repeated", "error", err)
		outcome(t.span, "abandoned", err)
		return
	}
	if !first {
		// Another worker had this job and stored its result first, which is final.
		t.log.Warn("result refused: the job has one")
		w.Metrics.refused(t.src)
		if r, err = w.c.Results.Lookup(ctx, t.id); err != nil {
			t.log.Error("result not read; the job will be repeated", "error", err)
			return
		}
	}
	w.finished(ctx, t, r)
}

// finished does what follows the result, in this order: the dead letter, the acknowledgement, the
// removal of the object of the specification. Each step can be repeated. If the worker dies between
// two, the next delivery of the job repeats them.
func (w *Worker) finished(ctx context.Context, t *task, r jobs.Result) {
	letter := queue.NeedsLetter(r, t.m.Header.Get(wire.HeaderWaited) != "")
	if letter {
		id := t.id
		if id == "" {
			sum := sha256.Sum256(t.m.Data)
			id = "bad-" + hex.EncodeToString(sum[:16])
		}
		err := w.c.Letters.Put(ctx, w.retryWhileFull, queue.StoredLetter{
			Source: t.src, ID: id, Data: t.m.Data, Reason: r.Error, Attempts: t.attempt, Worker: w.Name,
			Level: jobs.Level(t.m.Header.Get(wire.HeaderLevel)),
		})
		if err != nil {
			t.log.Error("dead letter not stored; the job will be repeated", "error", err)
			return
		}
	}
	w.deps.JobEnded(t.id)
	w.heartbeats.Drop(t.m)
	// It does not wait for the server: if the acknowledgement is lost, the next delivery finds the
	// result. A job with a dead letter leaves at once, because a redrive must not find it queued.
	if err := w.acks.Done(t.m, !letter); err != nil {
		t.log.Warn("job not acknowledged; it will be given out again", "error", err)
		return
	}
	if ref := t.job.SpecRef; ref != nil && !letter { // a redrive needs it
		if err := w.c.Objects.DeleteObject(ctx, ref.Name, jobs.Owner{}); err != nil {
			t.log.Warn("spec not removed from the object store", "object", ref.Name, "error", err)
		}
	}
	w.Metrics.settled(t.src, r, letter)
	settled(t.span, r)
	if r.Error != nil {
		t.log.Warn("job failed", "error", r.Error)
	} else {
		t.log.Info("job done")
	}
}

// progress publishes the progress of a job, and keeps it for questions about running jobs. An error
// is logged only.
func (w *Worker) progress(t *task, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		w.Logger.Warn("progress is not JSON", "job", t.id, "error", err)
		return
	}
	w.current.progress(t.shown, data)
	_ = w.c.NC.Publish("exo.progress."+t.id, data) // best effort by contract
}

// protect returns a panic of fn as an error, so that one bad job does not end the process.
func protect[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = jobs.Errorf(jobs.CodeInternal, "handler panicked: %v", p)
		}
	}()
	return fn()
}
