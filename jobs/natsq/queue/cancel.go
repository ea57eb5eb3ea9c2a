package queue

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Cancel asks for a job to end. With finish the job takes no new input, and its result says how far
// it came. Otherwise the job fails as cancelled: at once if no worker has had it, else when its
// worker has stopped it or receives it again. Cancel returns nil for a job that has ended, and
// changes nothing then. The call may be repeated after an error.
func (q *Queue) Cancel(ctx context.Context, j jobs.Job, finish bool) error {
	how := "stop"
	if finish {
		how = "finish"
	}
	if err := jobs.CheckID("job id", j.ID); err != nil {
		return err
	}
	what := "cancel job " + j.ID
	// The mark comes before the withdrawal, so that a worker that receives the job meanwhile sees
	// it.
	err := q.conn.Retry(ctx, what, func(ctx context.Context) error {
		kv, err := q.conn.JS.KeyValue(ctx, wire.CancelBucket)
		if err != nil {
			return err
		}
		_, err = kv.PutString(ctx, j.ID, how)
		return err
	})
	if err != nil || finish {
		return err
	}
	waiting, err := q.Reclaim(ctx, j)
	if err != nil || !waiting {
		return err
	}
	r := jobs.Result{
		Version: jobs.Version, JobID: j.ID, Kind: j.Kind, Status: jobs.Failed, Finished: time.Now().UTC(),
		Error: jobs.Errorf(jobs.CodeCanceled, "%v before it began", jobs.ErrCancelled),
	}
	if _, err = q.results.Put(ctx, r, j.ResultTTL); err != nil {
		return err
	}
	return q.ResolveChildren(ctx, j.ID)
}

// Withdraw removes a job that no worker has had from the queue, without a result. A job that a
// worker has had stays.
func (q *Queue) Withdraw(ctx context.Context, j jobs.Job) error {
	_, err := q.Reclaim(ctx, j)
	return err
}

// Reclaim is Withdraw, and reports whether it removed the job: false means that a worker has had
// it, or that it has ended. It searches the streams in the order in which a job moves through them,
// so a job that moves meanwhile is still found.
func (q *Queue) Reclaim(ctx context.Context, j jobs.Job) (waiting bool, err error) {
	s := wire.SourceOf(j)
	if !s.Valid() {
		return false, j.Validate()
	}
	if waiting, err = q.withdrawWaiting(ctx, s, j.ID); err != nil {
		return false, err
	}
	for _, subject := range []string{s.Sched(j.ID), s.Due(j.ID)} {
		n, err := q.conn.Purge(ctx, wire.SchedStream, subject)
		if err != nil {
			return false, err
		}
		waiting = waiting || n > 0
	}
	queued, err := q.atLevels(ctx, j, func(s wire.Source) (bool, error) {
		if queued, err := q.queuedAt(ctx, s, j.ID); err != nil || !queued {
			return false, err
		}
		// A worker may receive the job at this moment. Then it sees the mark of Cancel. If it has ended
		// the job before that, its result is refused, because Cancel stores one first.
		n, err := q.conn.Purge(ctx, s.Stream(), s.Job(j.ID))
		return n > 0, err
	})
	return (waiting || queued) && err == nil, err
}

// Queued reports whether a job is in the queue and no worker has had it.
func (q *Queue) Queued(ctx context.Context, j jobs.Job) (bool, error) {
	return q.atLevels(ctx, j, func(s wire.Source) (bool, error) { return q.queuedAt(ctx, s, j.ID) })
}

// atLevels returns what do returns for the level that has a job; false if none has it. do fails
// with jobs.ErrNotFound if its source does not have the job.
func (q *Queue) atLevels(ctx context.Context, j jobs.Job, do func(wire.Source) (bool, error)) (bool, error) {
	levels, err := q.levels(ctx, j.Pool)
	if err != nil {
		return false, err
	}
	for _, l := range levels {
		done, err := do(wire.SourceOf(j).At(l))
		switch {
		case absent(l, err) && l != j.Level(), errors.Is(err, jobs.ErrNotFound):
		case err != nil:
			return false, err
		default: // it is at no other level
			return done, nil
		}
	}
	return false, nil
}

// queuedAt reports whether no worker has had a job of a source. It fails with jobs.ErrNotFound if
// the source does not have the job.
func (q *Queue) queuedAt(ctx context.Context, s wire.Source, id string) (bool, error) {
	m, err := q.lastAt(ctx, s, s.Job(id))
	if err != nil {
		return false, err
	}
	var given uint64 // the sequence number of the last job that the source has delivered
	err = q.conn.Retry(ctx, "look at queue "+s.Tail(), func(ctx context.Context) error {
		cons, err := q.conn.JS.Consumer(ctx, s.Stream(), s.Consumer())
		if err != nil {
			return err
		}
		given = cons.CachedInfo().Delivered.Stream
		return nil
	})
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, err
	}
	return m.Seq > given, nil
}
