package natsq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// discovery finds the sources of a pool for one worker. It also ends queued jobs that no worker
// would ever take. Only queuedByTenant may be called concurrently with the other methods.
type discovery struct {
	c        *Conn
	pool     jobs.Pool
	worker   string
	serves   func(kind string) bool
	sources  *sourceTable
	jobEnded func(id string) // called for a job that expire has ended
	stuck    *stuckJobs
	foreign  foreign
	log      *slog.Logger

	mu     sync.Mutex
	queued map[string]uint64 // jobs by tenant at the last call of look
}

// newDiscovery returns the discovery of a worker. It adds sources to the table, for kinds that the
// options have a handler for.
func newDiscovery(c *Conn, o WorkerOptions, t *sourceTable, jobEnded func(id string)) *discovery {
	return &discovery{
		c: c, pool: o.Pool, worker: o.Name, serves: o.serves, sources: t, jobEnded: jobEnded,
		stuck: newStuckJobs(c, o.Logger), log: o.Logger,
	}
}

// queuedByTenant returns the number of queued jobs of each tenant at the last call of look. The
// caller must not change the map.
func (w *discovery) queuedByTenant() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// maxExpired bounds how many queued jobs of one source a call of expire reads.
const maxExpired = 100

// expire ends queued jobs past their deadline whose kind no agent serves. No worker takes such a
// job, so no worker would notice its deadline. It reads the oldest jobs of each source. Several
// workers may do this at the same time, because the first result is final.
func (w *discovery) expire(ctx context.Context) error {
	if len(w.foreign.sources) == 0 {
		return nil
	}
	served, err := w.c.Registry.Served(ctx, w.pool)
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

// expireSource ends the oldest queued jobs of a source that are past their deadline.
func (w *discovery) expireSource(ctx context.Context, s wire.Source) error {
	stream := s.Stream()
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
			Version: jobs.Version, JobID: id, Kind: s.Kind, Status: jobs.Failed, Worker: w.worker,
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
		w.jobEnded(id)
		w.log.Warn("a queued job has passed its deadline", "job", id, "kind", s.Kind, "deadline", j.Deadline)
	}
	return nil
}

// look finds the sources of the pool. Usually each has a consumer, which its first submitter has
// made. A job has no consumer if it was published by hand, or if no worker has served its kind for
// the time after which the server removes an idle consumer. Then the pool has more jobs than its
// consumers know, and look lists the subjects of all jobs, which is expensive and therefore rare.
func (w *discovery) look(ctx context.Context) error {
	all, queued, err := w.c.Queue.Consumers(ctx, w.pool)
	if err != nil {
		return err
	}
	var known uint64
	waiting, others := map[string]uint64{}, map[wire.Source]bool{}
	for s, i := range all {
		known += i.NumPending + uint64(i.NumAckPending)
		waiting[s.Tenant] += i.NumPending
		if w.serves(s.Kind) {
			w.sources.add(s, true)
		} else if i.NumPending > 0 {
			others[s] = true
		}
	}
	w.mu.Lock()
	w.queued = waiting
	w.mu.Unlock()
	if queued.Msgs <= known {
		w.foreign = foreign{sources: others}
		return nil
	}
	for s, i := range all {
		if !w.serves(s.Kind) {
			continue
		}
		if err := w.stuck.look(ctx, s, i); err != nil {
			return err
		}
	}
	n := queued.Msgs - known
	if n == w.foreign.jobs && time.Since(w.foreign.listed) < queue.Relist {
		return nil
	}
	found, err := w.c.Queue.SourcesOf(ctx, w.pool)
	if err != nil {
		return err
	}
	for s := range found {
		switch {
		case !w.serves(s.Kind):
			others[s] = true
		case all[s] == nil:
			w.sources.add(s, false)
		}
	}
	w.foreign = foreign{sources: others, jobs: n, listed: time.Now()}
	return nil
}

type foreign struct {
	sources map[wire.Source]bool // their sources
	jobs    uint64               // jobs without a consumer, of any kind
	listed  time.Time            // when their subjects were listed
}
