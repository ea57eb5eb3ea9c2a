package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// A job with parents is in wire.WaitStream until they have ended. One atomic batch stores the job
// and, right after it, one edge per parent in the order of Job.After: edge i of the job at sequence
// number n is at n+1+i. An edge that exists stands for a parent that has not ended.

// submitGraph stores a batch as waiting jobs, all or none. The batch may have jobs without parents.
// The call then moves on the jobs that need not wait. The resolvers of the workers do the same for
// the jobs that this call does not reach.
func (q *Queue) submitGraph(ctx context.Context, what string, batch []jobs.Job, again redrive) error {
	for _, j := range batch {
		if err := j.WithDefaults().Validate(); err != nil {
			return err
		}
	}
	if err := jobs.CheckGraph(batch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var msgs []*nats.Msg
	for _, j := range batch {
		m, j, err := q.Prepare(ctx, j)
		if err != nil {
			return err
		}
		m.Subject = wire.SourceOf(j).Wait(j.ID)
		again.mark(m)
		msgs = append(msgs, m)
		for _, p := range j.After {
			msgs = append(msgs, &nats.Msg{Subject: wire.EdgeSubject(p, j.ID), Data: []byte(m.Subject)})
		}
	}
	if len(msgs) > jobs.MaxBatch {
		return jobs.Errorf(jobs.CodeInvalid, "%s: they and what they wait for are %d together: at most %d are "+
			"submitted as one: submit the parents first", what, len(msgs), jobs.MaxBatch)
	}
	if err := q.checkGraph(ctx, batch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	stored, err := q.publishOnce(ctx, q.conn.RetryUnlessFull, what, wire.WaitStream, msgs)
	if exists, _ := natsconn.Rejected(err); exists {
		found, first, ferr := q.present(ctx, batch)
		switch {
		case ferr != nil:
			return fmt.Errorf("%s: %w", what, ferr)
		case stored && found == len(batch):
			err = nil
		case found > 0:
			return fmt.Errorf("%s: none was stored, because job %s exists: %w", what, first, jobs.ErrExists)
		default: // edges are left of a withdrawn job with the same id
			if err := q.clearEdges(ctx, batch); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			_, err = q.publishOnce(ctx, q.conn.RetryUnlessFull, what, wire.WaitStream, msgs)
		}
	}
	if err != nil {
		return SubmitError(what, err)
	}
	inside := map[string]bool{}
	for _, j := range batch {
		inside[j.ID] = true
	}
	// The batch is stored, so errors from here on do not matter. Jobs with a parent in the batch
	// follow that parent.
	_ = each(batch, func(j jobs.Job) error {
		if slices.ContainsFunc(j.After, func(p string) bool { return inside[p] }) {
			return nil
		}
		subject := wire.SourceOf(j).Wait(j.ID)
		if f, err := q.Resolve(ctx, subject, nil); err == nil && f == ended {
			return q.ResolveChildren(ctx, j.ID)
		}
		return nil
	})
	return nil
}

// checkGraph finds the errors of a batch that the server would not refuse: a job that has ended, is
// queued or is delayed, an unknown parent, and a job for which another one waits already, so that
// its parents could close a circle.
func (q *Queue) checkGraph(ctx context.Context, batch []jobs.Job) error {
	inside := map[string]bool{}
	child := map[string]string{} // a child in the batch, by parent outside of the batch
	for _, j := range batch {
		inside[j.ID] = true
	}
	var outside []jobs.Job
	for _, j := range batch {
		for _, p := range j.After {
			if !inside[p] && child[p] == "" {
				child[p] = j.ID
				outside = append(outside, jobs.Job{ID: p})
			}
		}
	}
	err := each(batch, func(j jobs.Job) error {
		s, err := q.moveTo(ctx, wire.SourceOf(j), nats.Header{wire.HeaderLevel: {string(j.Level())}})
		if err != nil {
			return err
		}
		if err := q.unknown(ctx, j, s); err != nil {
			return err
		}
		if _, err := q.conn.Last(ctx, s.Stream(), s.Job(j.ID)); err == nil {
			return fmt.Errorf("job %s is queued: %w", j.ID, jobs.ErrExists)
		} else if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		if len(j.After) == 0 {
			return nil
		}
		m, err := q.conn.Next(ctx, wire.WaitStream, wire.EdgeSubject(j.ID, "*"), 1)
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return jobs.Errorf(jobs.CodeInvalid, "job %s has after, and job %s waits for it already: give it a new id",
			j.ID, m.Subject[strings.LastIndex(m.Subject, ".")+1:])
	})
	if err != nil {
		return err
	}
	return each(outside, func(p jobs.Job) error {
		there, err := q.Known(ctx, p.ID)
		if err == nil && !there {
			err = jobs.Errorf(jobs.CodeInvalid, "job %s waits for %s, which is not known: submit that first, "+
				"or both together; a job that is over is known while its result is kept", child[p.ID], p.ID)
		}
		return err
	})
}

// present counts the jobs that are known, and returns the id of the first of them in the batch.
func (q *Queue) present(ctx context.Context, batch []jobs.Job) (n int, first string, err error) {
	return count(batch, func(j jobs.Job) (bool, error) { return q.Known(ctx, j.ID) })
}

// count calls is for the jobs of a batch, several at a time. It counts the jobs for which is
// reports true, and returns the id of the first of them in the batch.
func count(batch []jobs.Job, is func(jobs.Job) (bool, error)) (n int, first string, err error) {
	var mu sync.Mutex
	there := map[string]bool{}
	err = each(batch, func(j jobs.Job) error {
		ok, err := is(j)
		mu.Lock()
		there[j.ID] = ok
		mu.Unlock()
		return err
	})
	for _, j := range batch {
		if there[j.ID] {
			if n++; n == 1 {
				first = j.ID
			}
		}
	}
	return n, first, err
}

// clearEdges removes the edges of jobs that do not wait. The caller has checked that none of them
// is known.
func (q *Queue) clearEdges(ctx context.Context, batch []jobs.Job) error {
	return each(batch, func(j jobs.Job) error {
		for _, p := range j.After {
			if _, err := q.conn.Purge(ctx, wire.WaitStream, wire.EdgeSubject(p, j.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Missing returns the parents of a waiting job that have not ended, in the order of Job.After. It
// returns none for a job that does not wait.
func (q *Queue) Missing(ctx context.Context, j jobs.Job) ([]string, error) {
	s := wire.SourceOf(j)
	if len(j.After) == 0 || !s.Valid() {
		return nil, nil
	}
	m, err := q.conn.Last(ctx, wire.WaitStream, s.Wait(j.ID))
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for i, p := range j.After {
		there, err := q.edge(ctx, m.Seq, i, p, j.ID)
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, p)
		}
	}
	return all, nil
}

// edge reports whether edge i exists of the job that waits at a sequence number.
func (q *Queue) edge(ctx context.Context, job uint64, i int, parent, child string) (bool, error) {
	var m *natsconn.Message
	err := q.conn.Retry(ctx, "read the edge from "+parent+" to "+child, func(ctx context.Context) (err error) {
		m, err = q.conn.GetOnce(ctx, wire.WaitStream, map[string]any{"seq": edgeSeq(job, i)})
		return err
	})
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil && m.Subject == wire.EdgeSubject(parent, child), err
}

// edgeSeq returns the sequence number of edge i of the job at a sequence number.
func edgeSeq(job uint64, i int) uint64 { return job + 1 + uint64(i) }

// unwait removes a waiting job and then its edges. In this order a process that finds no edge any
// more can see that the job was removed (Enqueue), and does not queue it.
func (q *Queue) unwait(ctx context.Context, m *natsconn.Message, parents []string) error {
	if err := q.conn.Remove(ctx, wire.WaitStream, m.Seq); err != nil {
		return err
	}
	id := m.Subject[strings.LastIndex(m.Subject, ".")+1:]
	for i, p := range parents {
		there, err := q.edge(ctx, m.Seq, i, p, id)
		if err == nil && there {
			err = q.conn.Remove(ctx, wire.WaitStream, edgeSeq(m.Seq, i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withdrawWaiting removes a job that waits for others, and reports whether there was one.
func (q *Queue) withdrawWaiting(ctx context.Context, s wire.Source, id string) (waiting bool, err error) {
	m, err := q.conn.Last(ctx, wire.WaitStream, s.Wait(id))
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	j, _ := jobs.DecodeJob(m.Data) // a message that is not a job has no edges
	return true, q.unwait(ctx, m, j.After)
}

// msgID returns the message id of the move of a waiting job. The server remembers it for two
// minutes and stores only one of several moves.
func msgID(id string, seq uint64) string {
	return "wait-" + id + "-" + strconv.FormatUint(seq, 10)
}
