package queue

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

const (
	// HeaderForgiven of a job's message is the revision of the last cancellation that does not count
	// for the job.
	HeaderForgiven = "Exo-Forgiven"
	// headerLetter of a job's message is the sequence number of the dead letter that was redriven.
	headerLetter = "Exo-Letter"
)

// redrive says what queued a job once more. The zero value belongs to a new job.
type redrive struct {
	forgiven uint64 // cancellations up to this revision do not count
	letter   uint64 // sequence number of the dead letter
}

// mark adds the headers of a redriven job.
func (r redrive) mark(m *nats.Msg) {
	if r.forgiven > 0 {
		natsconn.SetHeader(m, HeaderForgiven, strconv.FormatUint(r.forgiven, 10))
	}
	if r.letter > 0 {
		natsconn.SetHeader(m, headerLetter, strconv.FormatUint(r.letter, 10))
	}
}

// resubmit queues j, the job of a dead letter, with the changes that j has. It does not count the
// job against the limits of its tenant. Cancellations up to the revision forgiven do not count for
// it.
//
// A process that ends a job stores the letter before it removes the job from its queue. In between,
// the subject of the job is taken. resubmit then removes that copy itself. The process removes it
// by its sequence number, so it does not touch the new one. A process that dies after the removal
// of a waiting job leaves its edges, which take the subjects of the new ones.
func (q *Queue) resubmit(ctx context.Context, d jobs.DeadLetter, j jobs.Job, forgiven uint64) error {
	again := redrive{forgiven: forgiven, letter: d.Seq}
	err := q.submit(ctx, j, again, false)
	if !errors.Is(err, jobs.ErrExists) {
		return err
	}
	removed, rerr := q.removeEnded(ctx, d, j)
	if rerr != nil {
		return rerr
	}
	if removed {
		return q.submit(ctx, j, again, false)
	}
	return err
}

// removeEnded removes the copy of a job from which its dead letter was made, and reports whether
// there was one. j is the job as it is queued again: it waits if it has parents, and its earlier
// copy does, too.
func (q *Queue) removeEnded(ctx context.Context, d jobs.DeadLetter, j jobs.Job) (bool, error) {
	s, err := q.moveTo(ctx, wire.SourceOf(j), nats.Header{wire.HeaderLevel: {string(j.Level())}})
	if err != nil {
		return false, err
	}
	stream, subject := s.Stream(), s.Job(j.ID)
	if len(j.After) > 0 {
		stream, subject = wire.WaitStream, s.Wait(j.ID)
	}
	// Read before the job is looked for: a job and its edges are stored together, so edges that were
	// there before the job was not are without a job.
	var edges []uint64
	for _, p := range j.After {
		e, err := q.conn.Last(ctx, wire.WaitStream, wire.EdgeSubject(p, j.ID))
		if err == nil {
			edges = append(edges, e.Seq)
		} else if !errors.Is(err, jobs.ErrNotFound) {
			return false, err
		}
	}
	m, err := q.conn.Last(ctx, stream, subject)
	if errors.Is(err, jobs.ErrNotFound) { // it was removed since
		for _, e := range edges {
			if err := q.conn.Remove(ctx, wire.WaitStream, e); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// An earlier call that failed in the middle has queued the job: its copy has the number of the
	// letter. A job that a client submitted since has another time of submission.
	if m.Header.Get(headerLetter) == strconv.FormatUint(d.Seq, 10) || !bytes.Equal(m.Data, d.Data) {
		return false, nil
	}
	if len(j.After) > 0 {
		return true, q.unwait(ctx, m, j.After)
	}
	return true, q.conn.Retry(ctx, "remove the ended job "+j.ID, func(ctx context.Context) error {
		_, err := q.conn.PurgeOnce(ctx, stream, subject, m.Seq+1)
		return err
	})
}
