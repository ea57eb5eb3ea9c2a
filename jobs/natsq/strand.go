package natsq

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// maxStranded bounds how many jobs one look takes out of a source.
const maxStranded = 1000

// stranded finds the jobs of a source that the server will hand out to nobody: its consumer is past
// them and waits for no acknowledgement. A power cut leaves such jobs when it takes the removal of
// a job but not its acknowledgement, which are two writes. They have their results, so they go. One
// without a result has been seen only where a replica was damaged: it stays, and the log says what
// helps.
func (w *Worker) stranded(ctx context.Context, s wire.Source, i *jetstream.ConsumerInfo) error {
	if i.NumPending > 0 || i.NumAckPending > 0 {
		delete(w.strand, s)
		return nil
	}
	stream := wire.JobStream(w.Pool)
	for seq, n := uint64(1), 0; n < maxStranded; n++ {
		m, err := w.c.NextOnce(ctx, stream, s.Job("*"), seq)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Seq > i.Delivered.Stream {
			if n == 0 {
				delete(w.strand, s)
			}
			return nil
		}
		if err != nil {
			return err
		}
		// What is under way at this moment looks the same: it is stranded when it is there at the
		// next look too.
		if n == 0 && w.strand[s] != m.Seq {
			w.strand[s] = m.Seq
			return nil
		}
		seq = m.Seq + 1
		_, id, _ := wire.ParseSubject(m.Subject)
		_, err = w.c.Results.Lookup(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			w.Logger.Warn("the server hands a job out to nobody: if it stays, make another server the leader of the "+
				"stream (nats stream cluster step-down)",
				"job", id, "stream", stream, "seq", m.Seq)
		case err != nil:
			return err
		default:
			if _, err := w.c.Purge(ctx, stream, m.Subject); err != nil {
				return err
			}
			w.Logger.Info("a job that has its result was still queued, and is taken out", "job", id, "stream", stream,
				"seq", m.Seq)
		}
	}
	return nil
}
