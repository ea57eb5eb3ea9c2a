package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// A job of a level is in the stream of the level only while it is queued. Before and afterwards it
// is in the streams of all jobs, whose replicas no level exceeds (natsconn.Conn.GrantLevel).

// WithLevel returns a job with the level that the header of its message has. Without one the job
// stays as it is.
func WithLevel(j jobs.Job, h nats.Header) jobs.Job {
	if l := h.Get(wire.HeaderLevel); l != "" {
		return j.WithLevel(jobs.Level(l))
	}
	return j
}

// decode reads a job from a stored message.
func decode(m *natsconn.Message) (jobs.Job, error) {
	j, err := jobs.DecodeJob(m.Data)
	return WithLevel(j, m.Header), err
}

// copyLevel gives a message the level of another one.
func copyLevel(to *nats.Msg, from nats.Header) {
	if l := from.Get(wire.HeaderLevel); l != "" {
		natsconn.SetHeader(to, wire.HeaderLevel, l)
	}
}

// absent reports whether an error of natsconn.Conn.AtLevel says that a level other than the default
// is gone, or that its server is away.
func absent(l jobs.Level, err error) bool {
	return l != "" && (errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrUnavailable))
}

// moveTo returns the source into which a waiting or delayed job moves. If the cluster does not give
// its level any more, it is the default one, which is at least as safe.
func (q *Queue) moveTo(ctx context.Context, s wire.Source, h nats.Header) (wire.Source, error) {
	l, err := q.conn.GrantLevel(ctx, s.Pool, jobs.Level(h.Get(wire.HeaderLevel)))
	if err != nil && (errors.Is(err, jobs.ErrDenied) || jobs.AsError(err).Code == jobs.CodeInvalid) {
		l, err = "", nil
	}
	return s.At(l), err
}

// grant returns the source of a new job. It fails with jobs.CodeInvalid and the cure if the cluster
// does not give the level, or if no agent reads it.
func (q *Queue) grant(ctx context.Context, j jobs.Job) (wire.Source, error) {
	s := wire.SourceOf(j)
	asked := j.Level()
	if asked == "" {
		return s, nil
	}
	l, err := q.conn.GrantLevel(ctx, j.Pool, asked)
	if err == nil && l != "" {
		err = q.readers.check(ctx, q.agents, j, l)
	}
	return s.At(l), err
}

// readers remembers for which sources agents read the jobs of a level.
type readers struct {
	mu    sync.Mutex
	until map[wire.Source]time.Time
}

// kindStream is the kind of the jobs that keep a swarm. Every CPU agent serves it, and removes the
// swarms of jobs that it does not find.
const kindStream = "stream"

// check fails if agents serve the kind of a job, but no such agent reads its level. An agent of an
// earlier version reads none. If no agent serves the kind, the job waits for one as any other.
func (r *readers) check(ctx context.Context, agents Agents, j jobs.Job, l jobs.Level) error {
	key := wire.Source{Pool: j.Pool, Kind: j.Kind, Level: l}
	r.mu.Lock()
	known := time.Now().Before(r.until[key])
	r.mu.Unlock()
	if known {
		return nil
	}
	all, err := agents.Agents(ctx)
	if err != nil {
		return err
	}
	var read, not []string
	for _, a := range all {
		switch {
		case a.Pool != j.Pool || !slices.Contains(a.Kinds, j.Kind):
		case slices.Contains(a.Levels, l):
			read = append(read, a.Name)
		default:
			not = append(not, a.Name)
		}
	}
	switch {
	case len(not) > 0 && len(read) == 0:
		return jobs.Errorf(jobs.CodeInvalid, "no agent of kind %s reads the jobs of level %s: %s knows no levels: "+
			"update it, or leave replicas and durability out", j.Kind, l, strings.Join(not, ", "))
	case len(not) > 0 && j.Kind == kindStream:
		return jobs.Errorf(jobs.CodeInvalid, "agent %s knows no levels, and would remove the swarm of a job of level "+
			"%s as the swarm of no job: update it, or leave replicas and durability out", strings.Join(not, ", "), l)
	case len(read) == 0:
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) > 1000 {
		r.until = map[wire.Source]time.Time{}
	}
	r.until[key] = time.Now().Add(natsconn.LevelsAge)
	return nil
}

// usesLevels reports whether a pool has another level than the default, or may have one.
func (q *Queue) usesLevels(ctx context.Context, p jobs.Pool) bool {
	all, err := q.conn.JobLevels(ctx, p, natsconn.LevelsAge)
	return err != nil || len(all) > 0
}

// elsewhere fails with jobs.ErrExists if the source of a job has the id at another level than s. A
// level whose first job comes from another process is seen after natsconn.LevelsAge, and one whose
// server is away is not asked.
func (q *Queue) elsewhere(ctx context.Context, s wire.Source, id string) error {
	levels, err := q.conn.JobLevels(ctx, s.Pool, natsconn.LevelsAge)
	if err != nil || len(levels) == 0 {
		return err
	}
	for _, l := range append([]jobs.Level{""}, levels...) {
		if l == s.Level {
			continue
		}
		o := s.At(l)
		_, err := q.lastAt(ctx, o, o.Job(id))
		switch {
		case err == nil:
			return fmt.Errorf("job %s is queued at another level: %w", id, jobs.ErrExists)
		case !errors.Is(err, jobs.ErrNotFound) && !absent(l, err):
			return err
		}
	}
	return nil
}
