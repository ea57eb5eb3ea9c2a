package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Queued is what the streams of a pool hold: the jobs that are queued, running or waiting for a
// retry, of all levels.
type Queued struct {
	Msgs, Bytes uint64
	First       time.Time // when the oldest was stored; zero if there is none
}

// Consumers returns the sources of a pool that have a consumer, with the state of the consumer, and
// what the streams of the pool held before that.
func (q *Queue) Consumers(ctx context.Context, p jobs.Pool) (all map[wire.Source]*jetstream.ConsumerInfo,
	held Queued, err error,
) {
	all = map[wire.Source]*jetstream.ConsumerInfo{}
	err = q.eachLevel(ctx, p, "list the queues", func(ctx context.Context, l jobs.Level, s jetstream.Stream) error {
		state := s.CachedInfo().State
		list := s.ListConsumers(ctx)
		for i := range list.Info() {
			if src, ok := wire.ParseConsumer(p, l, i.Name); ok {
				all[src] = i
			}
		}
		if err := list.Err(); err != nil {
			return err
		}
		held.Msgs += state.Msgs
		held.Bytes += state.Bytes
		if state.Msgs > 0 && (held.First.IsZero() || state.FirstTime.Before(held.First)) {
			held.First = state.FirstTime
		}
		return nil
	})
	return all, held, err
}

// eachLevel calls fn with the stream of each level of a pool, the default first. Other levels whose
// stream is gone or does not answer are left out. fn may be called again after an error, so it
// changes nothing of its caller's before it succeeds.
func (q *Queue) eachLevel(ctx context.Context, p jobs.Pool, what string,
	fn func(ctx context.Context, l jobs.Level, s jetstream.Stream) error,
) error {
	levels, err := q.levels(ctx, p)
	if err != nil {
		return err
	}
	for _, l := range levels {
		err := q.conn.AtLevel(ctx, p, l, what+" of pool "+string(p), func(ctx context.Context) error {
			s, err := q.conn.JS.Stream(ctx, wire.Source{Pool: p, Level: l}.Stream())
			if err != nil {
				return err
			}
			return fn(ctx, l, s)
		})
		if err != nil && !absent(l, err) {
			return err
		}
	}
	return nil
}

// Relist is the pause between two lists of the subjects of a pool, while the number of jobs without
// a consumer stays the same. Such jobs are usually of kinds that no worker serves.
const Relist = 5 * time.Minute

// SourcesOf counts the jobs of a pool by source. The server reads the subjects of all jobs, which
// takes long for a large queue.
func (q *Queue) SourcesOf(ctx context.Context, p jobs.Pool) (found map[wire.Source]uint64, err error) {
	found = map[wire.Source]uint64{}
	err = q.eachLevel(ctx, p, "list the subjects", func(ctx context.Context, _ jobs.Level, s jetstream.Stream) error {
		subjects, err := s.Info(ctx, jetstream.WithSubjectFilter("exo.job.>"))
		if err != nil {
			return err
		}
		for subject, n := range subjects.State.Subjects {
			if src, _, ok := wire.ParseSubject(subject); ok {
				found[src] += n
			}
		}
		return nil
	})
	return found, err
}

// Stats returns the state of the queue of a pool. The counts come from several answers of the
// server, so they may differ by the jobs that move meanwhile.
func (q *Queue) Stats(ctx context.Context, p jobs.Pool) (jobs.QueueStats, error) {
	all, held, err := q.Consumers(ctx, p)
	if err != nil {
		return jobs.QueueStats{}, err
	}
	paused, err := q.limits.PausedKeys(ctx)
	if err != nil {
		return jobs.QueueStats{}, err
	}
	st := jobs.QueueStats{
		Pool: p, Jobs: held.Msgs, Bytes: held.Bytes, Oldest: held.First,
		Paused: paused[wire.PauseKey(p, "")],
	}
	if st.Delayed, err = q.count(ctx, wire.SchedStream, p, "exo.sched.", "exo.due."); err != nil {
		return jobs.QueueStats{}, err
	}
	if st.Dependent, err = q.count(ctx, wire.WaitStream, p, "exo.wait."); err != nil {
		return jobs.QueueStats{}, err
	}
	served, err := q.agents.Served(ctx, p)
	if err != nil {
		return jobs.QueueStats{}, err
	}
	var known uint64
	add := func(s wire.Source, waiting uint64, i *jetstream.ConsumerInfo) {
		known += i.NumPending + uint64(i.NumAckPending)
		st.Sources = append(st.Sources, jobs.SourceStats{
			Kind: s.Kind, Lane: s.Lane, Tenant: s.Tenant, Level: s.Level, Waiting: waiting, Running: i.NumAckPending,
			Retried: i.NumRedelivered,
			Paused:  paused[wire.PauseKey(p, s.Kind)], Agents: served[s.Kind],
		})
	}
	for s, i := range all {
		add(s, i.NumPending, i)
	}
	if held.Msgs > known { // of kinds without a worker, or published by hand
		found, err := q.SourcesOf(ctx, p)
		if err != nil {
			return jobs.QueueStats{}, err
		}
		for s, n := range found {
			if all[s] == nil {
				add(s, n, &jetstream.ConsumerInfo{})
			}
		}
	}
	lanes := jobs.Lanes()
	slices.SortFunc(st.Sources, func(a, b jobs.SourceStats) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind),
			cmp.Compare(slices.Index(lanes, a.Lane), slices.Index(lanes, b.Lane)), strings.Compare(a.Tenant, b.Tenant),
			strings.Compare(string(a.Level), string(b.Level)))
	})
	return st, nil
}

// count counts the jobs of a pool in a stream of jobs that are not queued yet. The server reads the
// subjects of all of them, so the counts are kept until the stream changes.
func (q *Queue) count(ctx context.Context, stream string, p jobs.Pool, subjects ...string) (n uint64, err error) {
	err = q.conn.Retry(ctx, "count the jobs of "+stream, func(ctx context.Context) error {
		s, err := q.conn.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		now := s.CachedInfo().State
		key := stream + " " + string(p)
		state := [2]uint64{now.Msgs, now.LastSeq}
		if last, ok := q.counts.Load(key); ok && last.(counted).state == state {
			n = last.(counted).jobs
			return nil
		}
		n = 0
		for i := 0; i < len(subjects) && now.Msgs > 0; i++ {
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(subjects[i]+string(p)+".>"))
			if err != nil {
				return err
			}
			for _, m := range info.State.Subjects {
				n += m
			}
		}
		q.counts.Store(key, counted{state, n})
		return nil
	})
	return n, err
}

// counted is a number of jobs in a stream with a number of messages and a last one.
type counted struct {
	state [2]uint64
	jobs  uint64
}

// Find returns a job that is queued, running, delayed, or waiting for a retry or for other jobs. It
// fails with jobs.ErrNotFound if there is none of that id, for example because the job has ended.
func (q *Queue) Find(ctx context.Context, id string) (jobs.Job, error) {
	j, _, _, err := q.find(ctx, id)
	return j, err
}

// find is Find with the stream and the sequence number of the job.
func (q *Queue) find(ctx context.Context, id string) (j jobs.Job, stream string, seq uint64, err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return j, "", 0, err
	}
	all, err := q.places(ctx, id)
	if err != nil {
		return j, "", 0, err
	}
	var away error // a level that does not answer
	for _, at := range all {
		m, err := q.lastIn(ctx, at)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
		case absent(at.source.Level, err):
			away = err
		case err != nil:
			return j, "", 0, err
		default:
			j, err = decode(m)
			return j, at.stream, m.Seq, err
		}
	}
	if away != nil {
		return j, "", 0, fmt.Errorf("look for job %s: %w", id, away)
	}
	return j, "", 0, fmt.Errorf("job %s is not queued: %w", id, jobs.ErrNotFound)
}

// Over reports whether a job has ended, or is not known.
func (q *Queue) Over(ctx context.Context, id string) (bool, error) {
	_, err := q.Find(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	_, err = q.results.Lookup(ctx, id) // a job gets its result before it leaves the queue
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
