package natsq

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// serves reports whether the worker has a handler for jobs of a kind.
func (w *Worker) serves(kind string) bool {
	_, batch := w.Batches[kind]
	return batch || w.Handlers[kind] != nil
}

// maxExpired bounds how many queued jobs of a source of another kind one look reads.
const maxExpired = 100

// expireForeign ends queued jobs whose deadline has passed and whose kind no agent serves: no
// worker takes them, so no worker would notice. It reads the oldest of each source. Several workers
// may do it at once; the first result stands.
func (w *Worker) expireForeign(ctx context.Context) error {
	if len(w.foreign.sources) == 0 {
		return nil
	}
	served, err := w.c.Registry.Served(ctx, w.Pool)
	if err != nil {
		return err
	}
	for s := range w.foreign.sources {
		if served[s.Kind] > 0 {
			continue
		}
		if err := w.expireSource(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) expireSource(ctx context.Context, s wire.Source) error {
	stream := wire.JobStream(w.Pool)
	for n, seq := 0, uint64(1); n < maxExpired; n++ {
		m, err := w.c.NextOnce(ctx, stream, s.Job("*"), seq)
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		seq = m.Seq + 1
		_, id, _ := wire.ParseSubject(m.Subject)
		j, err := jobs.DecodeJob(m.Data)
		if err != nil || j.ID != id || j.Deadline.IsZero() || time.Now().Before(j.Deadline) {
			continue
		}
		r := jobs.Result{
			Version: jobs.Version, JobID: id, Kind: s.Kind, Status: jobs.Failed, Worker: w.Name,
			Finished: time.Now().UTC(),
			Error: jobs.Errorf(jobs.CodeDeadline, "job %s was not begun by %s: no agent of kind %s", id,
				j.Deadline.Format(time.RFC3339), s.Kind),
		}
		if _, err := w.c.Results.Put(ctx, r, j.ResultTTL); err != nil {
			return err
		}
		if _, err := w.c.Purge(ctx, stream, m.Subject); err != nil {
			return err
		}
		w.deps.JobEnded(id)
		w.Logger.Warn("a queued job has passed its deadline", "job", id, "kind", s.Kind, "deadline", j.Deadline)
	}
	return nil
}

// discover finds the sources of the worker's pool. Usually each has a consumer, made by whoever
// submitted to it first. A job has none when it was published by hand, or when its kind had no
// worker for longer than consumerIdle: then the pool has more jobs than the consumers account for,
// and the subjects of its jobs are listed.
func (w *Worker) discover(ctx context.Context) error {
	all, info, err := w.c.Queue.Consumers(ctx, w.Pool)
	if err != nil {
		return err
	}
	var known uint64
	waiting, others := map[string]uint64{}, map[wire.Source]bool{}
	for s, i := range all {
		known += i.NumPending + uint64(i.NumAckPending)
		waiting[s.Tenant] += i.NumPending
		if w.serves(s.Kind) {
			w.note(s, true)
		} else if i.NumPending > 0 {
			others[s] = true
		}
	}
	w.mu.Lock()
	w.waiting = waiting
	w.mu.Unlock()
	if info.State.Msgs <= known {
		w.foreign = foreign{sources: others}
		return nil
	}
	for s, i := range all {
		if !w.serves(s.Kind) {
			continue
		}
		if err := w.stranded(ctx, s, i); err != nil {
			return err
		}
	}
	n := info.State.Msgs - known
	if n == w.foreign.jobs && time.Since(w.foreign.listed) < queue.Relist {
		return nil
	}
	found, err := w.c.Queue.SourcesOf(ctx, w.Pool)
	if err != nil {
		return err
	}
	for s := range found {
		switch {
		case !w.serves(s.Kind):
			others[s] = true
		case all[s] == nil:
			w.note(s, false)
		}
	}
	w.foreign = foreign{sources: others, jobs: n, listed: time.Now()}
	return nil
}

// foreign is what a worker knows of jobs of kinds that it does not serve.
type foreign struct {
	sources map[wire.Source]bool // sources that have jobs which wait
	jobs    uint64               // jobs that belong to no consumer
	listed  time.Time            // when the subjects of those were listed
}
