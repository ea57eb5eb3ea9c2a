package natsq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// doBatch fills a batch up, runs it, and ends each of its jobs. keepOpen reports whether the caller
// has called sourceTable.keepOpen for the source.
func (w *Worker) doBatch(ctx context.Context, s wire.Source, b Batch, msgs []*nats.Msg, keepOpen bool) {
	base := context.WithoutCancel(ctx)
	tasks := make([]*task, 0, b.Max)
	size := 0
	until := time.Now().Add(b.Linger)
	add := func(msgs []*nats.Msg) {
		for _, m := range msgs {
			t := w.open(base, m)
			if t == nil {
				w.release(m)
				continue
			}
			tasks = append(tasks, t)
			size += len(m.Data)
			if d := t.job.Deadline; !d.IsZero() && d.Before(until) {
				until = d
			}
		}
	}
	add(msgs)
	room := func() (count, bytes int) { return b.Max - len(tasks), b.MaxBytes - size }
	w.linger(ctx, s, b, keepOpen, room, &until, add)
	if keepOpen {
		w.sources.closed(s)
	}
	defer func() {
		for _, t := range tasks {
			w.release(t.m)
			w.endLog(t)
			t.span.End()
		}
	}()
	// Jobs that were cancelled meanwhile, or are too late, do not run.
	left := tasks[:0:0]
	for _, t := range tasks {
		if err := w.mustRun(t); err != nil {
			w.settle(base, t, nil, err)
			continue
		}
		left = append(left, t)
	}
	if len(left) == 0 {
		return
	}
	run, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	for _, t := range left {
		w.heartbeats.OnLost(t.m, cancel)
		t.shown = w.current.begin(t.id, t.attempt, w.Name)
		defer w.current.end(t.shown)
	}
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	w.runBatch(ctx, run, b, left)
}

// linger asks the sources of the batch's kind for more jobs, most urgent lane first, until the
// batch is full or until has passed. With keepOpen it keeps a request open at the source that the
// batch began with, and the server sends jobs as they come: one request per batch instead of four.
// The loop of the worker may ask the other sources at the same time; each job goes to one of them.
func (w *Worker) linger(ctx context.Context, s wire.Source, b Batch, keepOpen bool, room func() (count, bytes int),
	until *time.Time, add func([]*nats.Msg),
) {
	if b.Linger <= 0 {
		return
	}
	const pause = 500 * time.Microsecond // a quarter of the default linger; the loop alone gets the wake-ups
	tick := time.NewTimer(pause)
	defer tick.Stop()
	for {
		for _, src := range byLane(w.ready()) {
			count, bytes := room()
			if count < 1 || bytes < jobs.MaxMessage {
				return
			}
			if src.Kind != s.Kind {
				continue
			}
			msgs, err := w.fetchFrom(ctx, src, natsconn.PullRequest{Messages: count, MaxBytes: bytes})
			if err != nil {
				return // the batch runs with the jobs that it has
			}
			add(msgs)
		}
		left := time.Until(*until)
		count, bytes := room()
		if left <= 0 || count < 1 || bytes < jobs.MaxMessage {
			return
		}
		if keepOpen && !w.heartbeats.Unhealthy() && !w.ctl.paused(s.Kind) {
			wait := min(left, longestOpen)
			began := time.Now()
			msgs, err := w.fetchFrom(ctx, s, natsconn.PullRequest{
				Messages: count, MaxBytes: bytes, Wait: wait, KeepOpen: true,
			})
			if err != nil {
				return
			}
			if add(msgs); ctx.Err() != nil {
				return
			}
			if left = time.Until(*until); time.Since(began) >= wait/2 || left <= 0 {
				continue
			}
			// The server refused the request, or the batch is full.
		}
		tick.Reset(min(pause, left))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// longestOpen is how long one request of a batch stays open. A batch closes later by at most this
// than the deadline of a job that came meanwhile, or than the end of the worker.
const longestOpen = defaultLinger

// byLane sorts sources in place, the most urgent lane first.
func byLane(all []wire.Source) []wire.Source {
	lanes := jobs.Lanes()
	slices.SortStableFunc(all, func(a, b wire.Source) int {
		return slices.Index(lanes, a.Lane) - slices.Index(lanes, b.Lane)
	})
	return all
}

// runBatch runs tasks together. If the handler fails without another cause, one of the jobs may be
// the reason, so the halves run separately.
func (w *Worker) runBatch(worker, run context.Context, b Batch, tasks []*task) {
	base := context.WithoutCancel(worker)
	span := w.c.batching(tasks)
	defer span.End()
	base, run = w.c.WithSpan(base, span), w.c.WithSpan(run, span)
	batch := make([]jobs.Job, len(tasks))
	for i, t := range tasks {
		batch[i] = t.job
		t.began = time.Now()
		w.Metrics.started(t.src, t.attempt, t.queued, t.span)
	}
	w.Logger.Debug("batch started", "kind", tasks[0].src.Kind, "jobs", len(tasks))
	run = jobs.WithLoggers(run, func(i int) *slog.Logger {
		if i < 0 || i >= len(tasks) {
			return w.Logger
		}
		return w.logger(tasks[i])
	})
	outs, err := protect(func() ([]jobs.Outcome, error) {
		return b.Handle(run, batch, func(i int, v any) {
			if i >= 0 && i < len(tasks) {
				w.progress(tasks[i], v)
			}
		})
	})
	for _, t := range tasks {
		w.Metrics.ended(t.src, t.began, t.span)
	}
	if err == nil && len(outs) != len(tasks) {
		err = jobs.Errorf(jobs.CodeInternal, "the handler of %s gave %d outcomes for %d jobs", tasks[0].src.Kind,
			len(outs), len(tasks))
	}
	cause := context.Cause(run)
	if err == nil {
		w.settleBatch(base, tasks, outs, cause, worker.Err() != nil)
		return
	}
	if len(tasks) == 1 || cause != nil || jobs.Retryable(err) {
		for _, t := range tasks {
			w.conclude(base, t, nil, err, cause, worker.Err() != nil)
		}
		return
	}
	outcome(span, "halved", err)
	w.Logger.Warn("a batch failed, running its halves", "kind", tasks[0].src.Kind, "jobs", len(tasks), "error", err)
	half := len(tasks) / 2
	w.runBatch(worker, run, b, tasks[:half])
	w.runBatch(worker, run, b, tasks[half:])
}

// settleBatch ends the tasks of a batch. It stores the results of the successful ones together.
func (w *Worker) settleBatch(ctx context.Context, tasks []*task, outs []jobs.Outcome, cause error, ending bool) {
	var done []*task
	var settled []jobs.Result
	var msgs []*nats.Msg
	for i, t := range tasks {
		r := w.makeResult(t, outs[i].Output, outs[i].Err)
		m, err := queue.ResultMessage(r, t.job.ResultTTL)
		if outs[i].Err != nil || r.Error != nil || err != nil {
			w.conclude(ctx, t, outs[i].Output, outs[i].Err, cause, ending)
			continue
		}
		w.c.Inject(w.c.WithSpan(ctx, t.span), m)
		done, settled, msgs = append(done, t), append(settled, r), append(msgs, m)
	}
	out, span := w.c.StartSend(ctx, "publish", wire.ResultStream)
	errs := w.c.PublishMany(out, w.retryWhileFull, &w.c.resultsMode, "store the results of a batch", msgs)
	natsconn.EndSpan(span, errors.Join(errs...))
	for i, t := range done {
		exists, _ := natsconn.Rejected(errs[i])
		if exists {
			errs[i] = nil
		}
		w.stored(ctx, t, settled[i], !exists, errs[i])
	}
}
