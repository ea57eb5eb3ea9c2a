package natsq

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// loop waits for a free slot, fetches jobs of the source that the fair queue chooses, and starts
// them, until ctx ends. It is the only goroutine that takes slots.
func (w *Worker) loop(ctx context.Context) {
	q := wire.NewFairQueue()
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		w.asking.Store(1)
		s, msgs, err := w.fetch(ctx, q)
		w.asking.Store(0)
		if err != nil {
			<-w.slots
			if ctx.Err() != nil {
				return
			}
			w.Logger.Warn("fetching work failed, trying again", "pool", w.Pool, "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		if b, ok := w.Batches[s.Kind]; ok {
			// An open request reserves slots of the tenant, so the source of a tenant with limits
			// is asked repeatedly instead. A full batch asks for no more.
			b.Max = b.most()
			keepOpen := b.Linger > 0 && len(msgs) < b.Max && !w.ctl.quota(s.Tenant).Limited()
			if keepOpen { // before this loop fetches again
				w.sources.keepOpen(s)
			}
			w.running.Go(func() {
				defer func() { <-w.slots }()
				w.doBatch(ctx, s, b, msgs, keepOpen)
			})
			continue
		}
		for i, m := range msgs {
			if i > 0 {
				w.slots <- struct{}{} // fetch counted the free ones, and only this goroutine takes them
			}
			w.running.Go(func() {
				defer func() { <-w.slots }()
				w.do(ctx, m)
			})
		}
	}
}

// fetch waits until a source has jobs, and returns as many as the worker has room for.
func (w *Worker) fetch(ctx context.Context, q *wire.FairQueue) (wire.Source, []*nats.Msg, error) {
	for {
		ready := w.ready()
		s, ok := q.Next(ready)
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return s, nil, context.Cause(ctx)
			}
		}
		msgs, err := w.fetchFrom(ctx, s, natsconn.PullRequest{
			Messages: w.room(s), MaxBytes: w.Batches[s.Kind].MaxBytes,
			Wait: w.sources.wait(s, len(ready)),
		})
		if err != nil {
			return s, nil, err
		}
		if len(msgs) > 0 {
			q.SetWeight(s.Tenant, w.ctl.quota(s.Tenant).Weight)
			q.Take(s, len(msgs))
			return s, msgs, nil
		}
	}
}

// room returns how many jobs of a source are fetched at once: a batch, or one for each free slot
// and for the slot of the fetch itself.
func (w *Worker) room(s wire.Source) int {
	if b, ok := w.Batches[s.Kind]; ok {
		return b.most()
	}
	return max(1, 1+cap(w.slots)-len(w.slots))
}

// hasJobs asks the stream whether a source has jobs. If not, the source is not ready until there
// are news.
func (w *Worker) hasJobs(ctx context.Context, s wire.Source) (bool, error) {
	news, _ := w.sources.begin(s)
	_, err := w.c.NextOnce(ctx, s.Stream(), s.Job("*"), 1)
	if !errors.Is(err, jobs.ErrNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err == nil, err
	}
	w.sources.noJobs(s, news)
	return false, nil
}

// fetchFrom fetches jobs of one source and begins their heartbeats. It returns fewer than asked
// for, or none, when the source has no more or its tenant no more slots.
func (w *Worker) fetchFrom(ctx context.Context, s wire.Source, r natsconn.PullRequest) ([]*nats.Msg, error) {
	news, hasConsumer := w.sources.begin(s)
	if !hasConsumer {
		if ok, err := w.openSource(ctx, s); !ok {
			return nil, err
		}
	}
	if r.Messages = w.limits.Reserve(s, r.Messages); r.Messages == 0 {
		return nil, nil // another fetch of this worker has the slots
	}
	msgs, err := w.puller.Pull(ctx, s.Stream(), s.Consumer(), r)
	for _, m := range msgs {
		w.heartbeats.Add(m)
	}
	w.limits.Began(s, r.Messages, msgs)
	w.acks.Track(s, msgs)
	if errors.Is(err, natsconn.ErrNoConsumer) {
		// An operator has removed it, or its leader is being elected. The next fetch makes it
		// again.
		w.c.Queue.Forget(s)
		w.sources.consumer(s, false)
		err = nil
	}
	if len(msgs) > 0 {
		err = nil // if it persists, the next fetch returns it
	}
	// A fetch with jobs that is bounded by bytes may have left others.
	if bounded := r.MaxBytes > 0 && len(msgs) > 0; len(msgs) < r.Messages && !bounded {
		w.sources.drained(s, news)
	}
	return msgs, err
}

// openSource makes the consumer of a source, and reports whether it did. A source of another level
// than the default whose stream is gone, or whose server is away, must not stop the worker: it
// waits until there are news of it.
func (w *Worker) openSource(ctx context.Context, s wire.Source) (ok bool, err error) {
	try, cancel := ctx, context.CancelFunc(func() {})
	if s.Level != "" {
		try, cancel = context.WithTimeout(ctx, natsconn.ShortTry)
	}
	defer cancel()
	err = w.c.Queue.EnsureConsumer(try, s)
	switch {
	case err == nil:
		w.sources.consumer(s, true)
		return true, nil
	case s.Level == "" || ctx.Err() != nil:
		return false, err
	}
	w.sources.leave(s)
	w.Logger.Warn("the jobs of a level wait for the NATS server that has them", "pool", s.Pool, "kind", s.Kind,
		"level", s.Level, "error", err)
	return false, nil
}

// retryWhileFull is a natsconn.RetryFunc. While the server has no space it tries again until the
// worker ends, because a job without a stored result runs again, which counts as an attempt.
func (w *Worker) retryWhileFull(ctx context.Context, what string, size int,
	fn func(ctx context.Context) error,
) error {
	for {
		err := w.c.RetryIdempotent(ctx, what, size, fn)
		if !natsconn.IsNoSpace(err) || !errors.Is(err, jobs.ErrUnavailable) {
			return err
		}
		select {
		case <-w.ending:
			return err
		default:
		}
		w.Logger.Warn("the NATS server has no room; trying again", "what", what, "error", err)
	}
}
