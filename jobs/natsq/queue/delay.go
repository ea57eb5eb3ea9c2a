package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/pull"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Headers of a message that the server moves to another subject of its stream when it is due
// (nats-server 2.12 and later).
const (
	headerSchedule = "Nats-Schedule"
	headerTarget   = "Nats-Schedule-Target"
)

// promoter is the consumer that all workers share to move jobs that are due into their queues.
const promoter = "promoter"

// schedule stores a job that is not to begin yet. It stands in a stream of its own, because the
// server takes schedules only where it may also forget, which a queue must not.
func (q *Queue) schedule(ctx context.Context, j jobs.Job, m *nats.Msg) error {
	what := "schedule job " + j.ID
	s := wire.SourceOf(j)
	if _, err := q.conn.Last(ctx, wire.JobStream(j.Pool), s.Job(j.ID)); err == nil {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	m.Subject = s.Sched(j.ID)
	// The client's own option cuts the time to whole seconds, which would be too early. The stamp
	// of the server ends in nanoseconds, so any time is taken as it is.
	trace := m.Header
	m.Header = nats.Header{
		headerSchedule: {"@at " + scheduled(j.NotBefore).UTC().Format(time.RFC3339Nano)},
		headerTarget:   {s.Due(j.ID)},

		jetstream.ExpectedLastSubjSeqHeader: {"0"},
	}
	natsconn.CopyTrace(m, trace)
	err := q.conn.PublishMsg(ctx, q.conn.RetryUnlessFull, what, m)
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	}
	return err
}

// MoveDelayed moves jobs that are due into their queues until ctx ends. Any number of workers do
// so; a job moved twice is one job, because its subject is taken or its result is there.
func (q *Queue) MoveDelayed(ctx context.Context, log *slog.Logger) {
	p := pull.New(q.conn.NC)
	defer p.Close()
	// A quarter of a second late at most, which a delayed job does not mind; with W workers 4 W
	// questions a second.
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	known := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !known {
			err := q.conn.Retry(ctx, "open the queue of delayed jobs", func(ctx context.Context) error {
				_, err := q.conn.JS.CreateOrUpdateConsumer(ctx, wire.SchedStream, jetstream.ConsumerConfig{
					Durable: promoter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.conn.Lease, MaxDeliver: -1,
					FilterSubject: "exo.due.>", MaxAckPending: maxUnacked,
				})
				return err
			})
			if err != nil {
				if ctx.Err() == nil {
					log.Warn("delayed jobs wait", "error", err)
				}
				continue
			}
			known = true
		}
		for {
			// see Worker.patience
			msgs, err := p.Pull(ctx, wire.SchedStream, promoter, pull.Request{Messages: 64, Wait: pull.ReadWait})
			known = known && !errors.Is(err, pull.ErrNoConsumer)
			for _, m := range msgs {
				q.promoteOne(context.WithoutCancel(ctx), m, log)
			}
			if len(msgs) < 64 {
				break
			}
		}
	}
}

func (q *Queue) promoteOne(ctx context.Context, m *nats.Msg, log *slog.Logger) {
	s, id, ok := wire.ParseSubject(m.Subject)
	if !ok || id == "" {
		log.Error("message dropped: it is on no job's subject", "subject", m.Subject)
		_ = m.Respond([]byte("+TERM"))
		return
	}
	err := jobs.CheckID("job id", id)
	if err == nil {
		_, err = q.results.Lookup(ctx, id)
	}
	if err != nil { // no result yet, or an id that will be a dead letter
		if err = q.EnsureConsumer(ctx, s); err == nil {
			out := &nats.Msg{Subject: s.Job(id), Data: m.Data}
			natsconn.CopyTrace(out, m.Header)
			err = q.conn.PublishMsg(ctx, q.conn.RetryIdempotent, "queue job "+id, out)
		}
		if exists, full := natsconn.Rejected(err); exists {
			err = nil
		} else if full {
			err = jobs.ErrFull
		}
	}
	if err != nil {
		log.Warn("delayed job not queued yet", "job", id, "error", err)
		_ = m.NakWithDelay(Backoff(2))
		return
	}
	_ = m.Ack() // if it is lost, the job is found in its queue or over
}

// scheduled is a time that the server can keep. It counts nanoseconds in 64 bits, and what is
// behind the year 2262 it takes for long ago.
func scheduled(at time.Time) time.Time {
	if last := time.Unix(0, 1<<63-1).Add(-24 * time.Hour); at.After(last) {
		return last
	}
	return at
}
