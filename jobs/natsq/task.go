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

	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/deadletters"
	"github.com/exoswarm/exoswarm/jobs/natsq/joblog"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// task is a job that a worker has, from its delivery to its end: settled, retried or given back.
type task struct {
	m       *nats.Msg
	src     wire.Source
	id      string // of the subject: what the queue knows the job by
	job     jobs.Job
	attempt int
	began   time.Time
	queued  time.Time // when the queue stored it, by the server's clock
	log     *slog.Logger
	span    trace.Span // of this attempt

	logOnce sync.Once
	logger  *slog.Logger // see Worker.logger
	lines   *joblog.Lines

	forgiven uint64 // cancellations up to this revision belong to an earlier life of the job
}

// open reads a delivery. A message that is no job is settled as a dead letter, a job that needs no
// run is settled at once; t is nil for both.
func (w *Worker) open(ctx context.Context, m *nats.Msg) (opened *task) {
	t := &task{m: m, attempt: 1, began: time.Now(), log: w.Logger, span: telemetry.NoSpan}
	if meta, err := m.Metadata(); err == nil {
		t.attempt, t.queued = int(meta.NumDelivered), meta.Timestamp
	}
	var ok bool
	if t.src, t.id, ok = wire.ParseSubject(m.Subject); !ok {
		// No consumer of ours asks for such a subject.
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
	t.forgiven, _ = strconv.ParseUint(m.Header.Get(queue.HeaderForgiven), 10, 64) // absent but in a redriven job
	t.log = w.Logger.With("job", t.id, "kind", t.src.Kind, "attempt", t.attempt)
	if err := jobs.CheckID("job id", t.id); err != nil {
		t.id = "" // no result can be asked for by such an id
		w.settle(ctx, t, nil, err)
		return nil
	}
	if t.attempt > 1 {
		// Somebody had it before and may have come as far as the result.
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
	if err == nil && (job.ID != t.id || wire.SourceOf(job) != t.src) {
		err = jobs.Errorf(jobs.CodeInvalid, "job %s stands on subject %s: the subject must be %s", job.ID, m.Subject,
			wire.SourceOf(job).Job(job.ID))
	}
	t.job = job.WithDefaults()
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

// abandoned removes the swarm that a job has left which ends as failed: a handler that returns an
// error after which it could be tried again keeps it, and none may have run in this attempt. What
// cannot be removed now is an orphan.
func (w *Worker) abandoned(ctx context.Context, t *task) {
	ctx, cancel := context.WithTimeout(ctx, abandonedPatience)
	defer cancel()
	s, err := w.c.Swarms.Swarm(ctx, t.id)
	if err == nil && s.OwnerJob() == t.id {
		err = w.c.Swarms.RemoveSwarm(ctx, s)
	}
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		t.log.Warn("the swarm of an earlier attempt was not removed", "error", err)
	}
}

// abandonedPatience is less than a worker keeps a job without a word.
const abandonedPatience = 5 * time.Second

// mustRun returns why a job ends without a run, or nil.
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

// mostDeliveries returns how often a job is given out at most. Workers that drain, or that are not
// fit for jobs, give jobs back, so a delivery alone is not a failure.
func mostDeliveries(j jobs.Job) int { return 2 * j.MaxAttempts }

// do runs one job to its end.
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
	w.held.onSick(m, cancel)
	detach := w.ctl.attach(t.id, t.forgiven, cancel)
	defer detach()
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })() // drain or stop of the worker
	t.log.Info("job started")
	w.hand.begin(t, w.Name)
	defer w.hand.end(t.id)
	w.Metrics.started(t)
	output, err := protect(func() (any, error) {
		return w.Handlers[t.src.Kind](run, t.job, func(v any) { w.progress(t.id, v) })
	})
	w.Metrics.ended(t)
	w.conclude(base, t, output, err, context.Cause(run), ctx.Err() != nil)
}

// release ends a worker's hold on a job. What it has not ended by then goes back to the queue when
// the lease runs out.
func (w *Worker) release(m *nats.Msg) {
	w.held.drop(m)
	w.done.leave(m)
	w.limits.end(m)
}

// withDeadline ends ctx with jobs.ErrDeadline, unless the time is zero.
func withDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if at.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, at, jobs.ErrDeadline)
}

// conclude turns what a handler returned into the job's fate; cause is why its context ended, if it
// did.
func (w *Worker) conclude(ctx context.Context, t *task, output any, err, cause error, ending bool) {
	switch {
	case err == nil:
	case errors.Is(cause, jobs.ErrCancelled):
		err = jobs.Errorf(jobs.CodeCanceled, "%v: %v", jobs.ErrCancelled, err) // whatever class the handler's has
	case errors.Is(cause, jobs.ErrDeadline):
		err = fmt.Errorf("job %s was not done by %s: %w", t.id, t.job.Deadline.Format(time.RFC3339), jobs.ErrDeadline)
	case ending:
		t.log.Info("job given back", "error", err)
		outcome(t.span, "given_back", nil)
		w.giveBack(t, 0)
		return
	case cause != nil && !errors.Is(cause, jobs.ErrFinish):
		// The worker is not healthy. The queue gives the job to another when its lease runs out.
		t.log.Warn("job abandoned", "error", err)
		outcome(t.span, "abandoned", err)
		return
	case errors.Is(err, jobs.ErrUnfit) && t.attempt >= mostDeliveries(t.job):
		// Each of these agents counted itself fit before. The job itself is more than they have.
		err = jobs.Errorf(jobs.CodeIO, "job %s was given to agents %d times that could not do it, the last one "+
			"because of: %v", t.id, t.attempt, err)
	case errors.Is(err, jobs.ErrUnfit):
		t.log.Warn("job given back: this agent cannot do jobs for now", "error", err)
		outcome(t.span, "given_back", err)
		w.giveBack(t, queue.FirstPause)
		return
	case errors.Is(err, jobs.ErrFenced):
		// Another attempt of the job holds what it writes: its outcome counts. If that one has
		// ended too the job comes again when the lease runs out.
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
	w.logger(t).Warn("job will be tried again", "error", err, "pause", pause)
	w.Metrics.retried(t)
	outcome(t.span, "retried", err)
	w.giveBack(t, pause)
}

// giveBack returns a job to the queue. When the server cannot be told, the end of the lease does
// the same.
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

// drop takes a message that is nobody's job out of the queue.
func (w *Worker) drop(t *task, err error) {
	w.Logger.Error("message dropped", "error", err)
	w.release(t.m)
	if rerr := t.m.Respond([]byte("+TERM " + err.Error())); rerr != nil {
		w.Logger.Warn("message not dropped", "error", rerr)
	}
}

// makeResult is the result of a task.
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

// maxMessage bounds the sentence of an error in a result, in bytes.
const maxMessage = 64 << 10

// settle writes a job's result, first writer wins, and takes the job out of the queue.
func (w *Worker) settle(ctx context.Context, t *task, output any, err error) {
	if err != nil && t.id != "" {
		w.abandoned(ctx, t)
	}
	w.settleResult(ctx, t, w.makeResult(t, output, err))
}

func (w *Worker) settleResult(ctx context.Context, t *task, r jobs.Result) {
	ctx = w.c.WithSpan(ctx, t.span)
	if t.id == "" {
		w.finished(ctx, t, r)
		return
	}
	first, err := w.c.Results.Store(ctx, w.insist, r, t.job.ResultTTL)
	w.stored(ctx, t, r, first, err)
}

// stored goes on where the result of a task was stored, or refused because it was not the first, or
// could not be stored.
func (w *Worker) stored(ctx context.Context, t *task, r jobs.Result, first bool, err error) {
	if err != nil {
		t.log.Error("result not stored; the job will be repeated", "error", err)
		outcome(t.span, "abandoned", err)
		return
	}
	if !first {
		// Another one had this job and was first; its result stands.
		t.log.Warn("result refused: the job has one")
		w.Metrics.refused(t)
		if r, err = w.c.Results.Lookup(ctx, t.id); err != nil {
			t.log.Error("result not read; the job will be repeated", "error", err)
			return
		}
	}
	w.finished(ctx, t, r)
}

// finished does what follows the result: the dead letter, the acknowledgement, the end of the
// spec's object. Whatever is not done when the worker dies, the next delivery of the job does.
func (w *Worker) finished(ctx context.Context, t *task, r jobs.Result) {
	if deadletters.Needed(r) {
		id := t.id
		if id == "" {
			sum := sha256.Sum256(t.m.Data)
			id = "bad-" + hex.EncodeToString(sum[:16])
		}
		err := w.c.Letters.Put(ctx, w.insist, deadletters.Letter{
			Source: t.src, ID: id, Data: t.m.Data, Reason: r.Error, Attempts: t.attempt, Worker: w.Name,
		})
		if err != nil {
			t.log.Error("dead letter not stored; the job will be repeated", "error", err)
			return
		}
	}
	w.deps.JobEnded(t.id)
	w.held.drop(t.m)
	// Not waited for: if it is lost, the next delivery finds the result. A job with a dead letter
	// leaves at once, because a redrive of it must not find it in the queue.
	if err := w.done.retire(t.m, !deadletters.Needed(r)); err != nil {
		t.log.Warn("job not acknowledged; it will be given out again", "error", err)
		return
	}
	if ref := t.job.SpecRef; ref != nil && !deadletters.Needed(r) { // a redrive needs it
		if err := w.c.Objects.DeleteObject(ctx, ref.Name, jobs.Owner{}); err != nil {
			t.log.Warn("spec not removed from the object store", "object", ref.Name, "error", err)
		}
	}
	w.Metrics.settled(t, r)
	settled(t.span, r)
	if r.Error != nil {
		t.log.Warn("job failed", "error", r.Error)
	} else {
		t.log.Info("job done")
	}
}

func (w *Worker) progress(id string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		w.Logger.Warn("progress is not JSON", "job", id, "error", err)
		return
	}
	w.hand.progress(id, data)
	_ = w.c.NC.Publish("exo.progress."+id, data) // best effort by contract
}

// protect turns a panic of a handler into an error, so that one bad job does not end the process.
func protect[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = jobs.Errorf(jobs.CodeInternal, "handler panicked: %v", p)
		}
	}()
	return fn()
}
