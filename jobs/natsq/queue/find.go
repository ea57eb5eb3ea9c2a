package queue

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// finder finds jobs in the places where a job can be. It needs the connection alone, so a part that
// the queue itself needs can use it too.
type finder struct{ conn *natsconn.Conn }

// Known is Queue.Known for a connection.
func Known(ctx context.Context, c *natsconn.Conn, id string) (bool, error) {
	return finder{c}.Known(ctx, id)
}

// Known reports whether the server has anything of a job: that it waits, is delayed, queued or has
// ended, or is a dead letter. A job moves forwards through these places, and is written to the next
// one before it leaves the present one, so one pass in their order finds it. Only a redrive moves
// back; the second pass finds that job.
func (f finder) Known(ctx context.Context, id string) (bool, error) {
	all, err := f.places(ctx, id)
	if err != nil {
		return false, err
	}
	all = append(all, placeOf{stream: wire.ResultStream, subject: wire.ResultSubject(id)},
		placeOf{stream: wire.DeadStream, subject: "exo.dead.*.*.*." + id})
	var away error // a level that does not answer
	for range 2 {
		for _, at := range all {
			_, err := f.lastIn(ctx, at)
			switch {
			case err == nil:
				return true, nil
			case errors.Is(err, jobs.ErrNotFound):
			case absent(at.source.Level, err):
				away = err
			default:
				return false, err
			}
		}
	}
	return false, away
}

// placeOf is where the job with an id may be.
type placeOf struct {
	stream, subject string
	source          wire.Source // with a pool for the streams of queued jobs
}

// places returns where a job that has not ended may be, in the order in which it moves.
func (f finder) places(ctx context.Context, id string) ([]placeOf, error) {
	all := []placeOf{
		{stream: wire.WaitStream, subject: "exo.wait.*.*.*.*." + id},
		{stream: wire.SchedStream, subject: "exo.sched.*.*.*.*." + id},
		{stream: wire.SchedStream, subject: "exo.due.*.*.*.*." + id},
	}
	for _, p := range wire.Pools() {
		levels, err := f.levels(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, l := range levels {
			s := wire.Source{Pool: p, Level: l}
			all = append(all, placeOf{s.Stream(), wire.AnyJob(p, l, "*", id), s})
		}
	}
	return all, nil
}

// lastIn returns the message of a job in a place.
func (f finder) lastIn(ctx context.Context, at placeOf) (*natsconn.Message, error) {
	if at.source.Level != "" {
		return f.lastAt(ctx, at.source, at.subject)
	}
	return f.conn.Last(ctx, at.stream, at.subject)
}

// levels returns the levels of a pool that have a stream now, the default first.
func (f finder) levels(ctx context.Context, p jobs.Pool) ([]jobs.Level, error) {
	all, err := f.conn.JobLevels(ctx, p, 0)
	return append([]jobs.Level{""}, all...), err
}

// lastAt returns the last message of a source on the subject of a job, which may have wildcards.
func (f finder) lastAt(ctx context.Context, s wire.Source, subject string) (m *natsconn.Message, err error) {
	err = f.conn.AtLevel(ctx, s.Pool, s.Level, "read "+subject, func(ctx context.Context) (err error) {
		m, err = f.conn.LastOnce(ctx, s.Stream(), subject)
		return err
	})
	return m, err
}
