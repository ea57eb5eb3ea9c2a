package natsq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// serves reports whether the worker has a handler for jobs of a kind.
func (w *Worker) serves(kind string) bool {
	_, batch := w.Batches[kind]
	return batch || w.Handlers[kind] != nil
}

// Served counts, for every kind, the agents of a pool that say that they serve it. It is a hint: it takes up to ten seconds to
// notice that an agent has died, and workers that do not announce themselves are not in it.
func (c *Conn) Served(ctx context.Context, p jobs.Pool) (map[string]int, error) {
	agents, err := c.Agents(ctx)
	if err != nil {
		return nil, err
	}
	served := map[string]int{}
	for _, a := range agents {
		if a.Pool == p {
			for _, kind := range a.Kinds {
				served[kind]++
			}
		}
	}
	return served, nil
}

// Unserved explains that no agent serves a kind of jobs, and names the kinds that are served. It returns "" when there is one.
func (c *Conn) Unserved(ctx context.Context, p jobs.Pool, kind string) (string, error) {
	served, err := c.Served(ctx, p)
	if err != nil || served[kind] > 0 {
		return "", err
	}
	return unserved(p, kind, served), nil
}

func unserved(p jobs.Pool, kind string, served map[string]int) string {
	if len(served) == 0 {
		return fmt.Sprintf("no agent of kind %s: pool %s has no agent", kind, p)
	}
	return fmt.Sprintf("no agent of kind %s: the agents of pool %s serve %s", kind, p, strings.Join(slices.Sorted(maps.Keys(served)), ", "))
}

// CheckPools refuses jobs for pool gpu while no agent takes jobs of that pool: the GPU agents of this version serve swarms only.
func (c *Conn) CheckPools(ctx context.Context, batch ...jobs.Job) error {
	i := slices.IndexFunc(batch, func(j jobs.Job) bool { return j.Pool == jobs.PoolGPU })
	if i < 0 {
		return nil
	}
	served, err := c.Served(ctx, jobs.PoolGPU)
	if err != nil || len(served) > 0 {
		return err
	}
	return jobs.Errorf(jobs.CodeInvalid,
		"job %s: no agent takes jobs of pool gpu: gpuagent serves swarms (exoswarm swarm create); use pool cpu, or start a worker of pool gpu first", batch[i].ID)
}

// maxExpired bounds how many queued jobs of a source of another kind one look reads.
const maxExpired = 100

// expireForeign ends queued jobs whose deadline has passed and whose kind no agent serves: no worker takes them, so no worker
// would notice. It reads the oldest of each source. Several workers may do it at once; the first result stands.
func (w *Worker) expireForeign(ctx context.Context) error {
	if len(w.foreign.sources) == 0 {
		return nil
	}
	served, err := w.c.Served(ctx, w.Pool)
	if err != nil {
		return err
	}
	for s := range w.foreign.sources {
		if served[s.kind] > 0 {
			continue
		}
		if err := w.expireSource(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) expireSource(ctx context.Context, s source) error {
	stream := jobStream(w.Pool)
	for n, seq := 0, uint64(1); n < maxExpired; n++ {
		m, err := w.c.next(ctx, stream, s.job("*"), seq)
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		seq = m.Seq + 1
		_, id, _ := parseSubject(m.Subject)
		j, err := jobs.DecodeJob(m.Data)
		if err != nil || j.ID != id || j.Deadline.IsZero() || time.Now().Before(j.Deadline) {
			continue
		}
		r := jobs.Result{
			Version: jobs.Version, JobID: id, Kind: s.kind, Status: jobs.Failed, Worker: w.Name, Finished: time.Now().UTC(),
			Error: jobs.Errorf(jobs.CodeDeadline, "job %s was not begun by %s: no agent of kind %s", id, j.Deadline.Format(time.RFC3339), s.kind),
		}
		if _, err := w.c.putResult(ctx, r, j.ResultTTL); err != nil {
			return err
		}
		if _, err := w.c.purge(ctx, stream, m.Subject); err != nil {
			return err
		}
		w.deps.ended(id)
		w.Logger.Warn("a queued job has passed its deadline", "job", id, "kind", s.kind, "deadline", j.Deadline)
	}
	return nil
}
