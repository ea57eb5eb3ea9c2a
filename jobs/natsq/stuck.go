package natsq

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// maxStuck bounds how many jobs of a source one call of look removes.
const maxStuck = 1000

// stuckJobs removes jobs that the server delivers to no worker any more: the consumer of their
// source is past them and expects no acknowledgement. A power cut leaves such a job when it loses
// the removal of the job but not its acknowledgement, which are two writes. Such a job has its
// result, so it is removed. A job without a result was seen only where a replica was damaged; it
// stays, and the log says how to repair that. A value is for one goroutine.
type stuckJobs struct {
	c   *Conn
	log *slog.Logger
	// first is the sequence number of the first job of a source that seemed stuck at the last call.
	first map[wire.Source]uint64
}

func newStuckJobs(c *Conn, log *slog.Logger) *stuckJobs {
	return &stuckJobs{c: c, log: log, first: map[wire.Source]uint64{}}
}

// look examines a source, whose consumer has the state i. A job is stuck when two calls find it,
// because a job whose acknowledgement is in progress looks the same.
func (w *stuckJobs) look(ctx context.Context, s wire.Source, i *jetstream.ConsumerInfo) error {
	if i.NumPending > 0 || i.NumAckPending > 0 {
		delete(w.first, s)
		return nil
	}
	stream := s.Stream()
	for seq, n := uint64(1), 0; n < maxStuck; n++ {
		m, err := w.c.NextOnce(ctx, stream, s.Job("*"), seq)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Seq > i.Delivered.Stream {
			if n == 0 {
				delete(w.first, s)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 && w.first[s] != m.Seq {
			w.first[s] = m.Seq
			return nil
		}
		seq = m.Seq + 1
		_, id, _ := wire.ParseSubject(m.Subject)
		_, err = w.c.Results.Lookup(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			w.log.Warn("the server hands a job out to nobody: if it stays, make another server the leader of the "+
				"stream (nats stream cluster step-down)",
				"job", id, "stream", stream, "seq", m.Seq)
		case err != nil:
			return err
		default:
			if _, err := w.c.Purge(ctx, stream, m.Subject); err != nil {
				return err
			}
			w.log.Info("a job that has its result was still queued, and is taken out", "job", id, "stream", stream,
				"seq", m.Seq)
		}
	}
	return nil
}
