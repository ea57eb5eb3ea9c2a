package natsq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// consumers lists the sources of a pool that have a consumer, with its state.
func (c *Conn) consumers(ctx context.Context, p jobs.Pool) (all map[source]*jetstream.ConsumerInfo, info *jetstream.StreamInfo, err error) {
	err = c.retry(ctx, "list the queues of pool "+string(p), func(ctx context.Context) error {
		all = map[source]*jetstream.ConsumerInfo{}
		s, err := c.js.Stream(ctx, jobStream(p))
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		list := s.ListConsumers(ctx)
		for i := range list.Info() {
			if src, ok := parseConsumer(p, i.Name); ok {
				all[src] = i
			}
		}
		return list.Err()
	})
	return all, info, err
}

// discover finds the sources of the worker's pool. Usually each has a consumer, made by whoever submitted to it first. A job that
// was published by hand may have none: then there are more jobs than the consumers know of, and their subjects are read.
func (w *Worker) discover(ctx context.Context) error {
	all, info, err := w.c.consumers(ctx, w.Pool)
	if err != nil {
		return err
	}
	var known uint64
	waiting := map[string]uint64{}
	for s, i := range all {
		w.note(s, true)
		known += i.NumPending + uint64(i.NumAckPending)
		waiting[s.tenant] += i.NumPending
	}
	w.mu.Lock()
	w.waiting = waiting
	w.mu.Unlock()
	if info.State.Msgs <= known {
		return nil
	}
	for s, i := range all {
		if err := w.stranded(ctx, s, i); err != nil {
			return err
		}
	}
	return w.c.retry(ctx, "list the subjects of pool "+string(w.Pool), func(ctx context.Context) error {
		s, err := w.c.js.Stream(ctx, jobStream(w.Pool))
		if err != nil {
			return err
		}
		subjects, err := s.Info(ctx, jetstream.WithSubjectFilter("exo.job.>"))
		if err != nil {
			return err
		}
		for subject := range subjects.State.Subjects {
			if src, _, ok := parseSubject(subject); ok && all[src] == nil {
				w.note(src, false)
			}
		}
		return nil
	})
}

// Stats describes the queue of a pool.
func (c *Conn) Stats(ctx context.Context, p jobs.Pool) (jobs.QueueStats, error) {
	all, info, err := c.consumers(ctx, p)
	if err != nil {
		return jobs.QueueStats{}, err
	}
	paused, err := c.pausedKeys(ctx)
	if err != nil {
		return jobs.QueueStats{}, err
	}
	st := jobs.QueueStats{Pool: p, Jobs: info.State.Msgs, Bytes: info.State.Bytes, Paused: paused[pauseKey(p, "")]}
	if info.State.Msgs > 0 {
		st.Oldest = info.State.FirstTime
	}
	for s, i := range all {
		st.Sources = append(st.Sources, jobs.SourceStats{
			Kind: s.kind, Lane: s.lane, Tenant: s.tenant, Waiting: i.NumPending, Running: i.NumAckPending, Retried: i.NumRedelivered,
			Paused: paused[pauseKey(p, s.kind)],
		})
	}
	lanes := jobs.Lanes()
	slices.SortFunc(st.Sources, func(a, b jobs.SourceStats) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(slices.Index(lanes, a.Lane), slices.Index(lanes, b.Lane)), strings.Compare(a.Tenant, b.Tenant))
	})
	return st, nil
}

// Find returns a job that is queued, running, waiting for a retry or for other jobs, or delayed; jobs.ErrNotFound when there is none of that
// id, which may be because it is over.
func (c *Conn) Find(ctx context.Context, id string) (jobs.Job, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Job{}, err
	}
	places := [][2]string{{waitStream, "exo.wait.*.*.*.*." + id}, {schedStream, "exo.sched.*.*.*.*." + id}, {schedStream, "exo.due.*.*.*.*." + id}}
	for _, p := range pools() {
		places = append(places, [2]string{jobStream(p), "exo.job." + string(p) + ".*.*.*." + id})
	}
	for _, place := range places {
		m, err := c.lastRetry(ctx, place[0], place[1])
		if errors.Is(err, jobs.ErrNotFound) {
			continue
		}
		if err != nil {
			return jobs.Job{}, err
		}
		return jobs.DecodeJob(m.Data)
	}
	return jobs.Job{}, fmt.Errorf("job %s is not queued: %w", id, jobs.ErrNotFound)
}

// Lookup returns the result of a job that is over, without waiting; jobs.ErrNotFound when it has none.
func (c *Conn) Lookup(ctx context.Context, id string) (jobs.Result, error) { return c.result(ctx, id) }
