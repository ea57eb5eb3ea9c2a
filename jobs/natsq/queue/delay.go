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
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Headers of a message that the server copies to another subject of its stream at a time
// (nats-server 2.12 and later).
const (
	headerSchedule = "Nats-Schedule"
	headerTarget   = "Nats-Schedule-Target"
)

// promoter is the consumer that the movers of all workers share.
const promoter = "promoter"

// schedule stores a job that must not begin yet. Such jobs are in another stream than queued jobs,
// because the server takes schedules only in a stream that may also drop messages, which a queue
// must not.
func (q *Queue) schedule(ctx context.Context, j jobs.Job, s wire.Source, m *nats.Msg) error {
	what := "schedule job " + j.ID
	if _, err := q.conn.Last(ctx, s.Stream(), s.Job(j.ID)); err == nil {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	m.Subject = s.Sched(j.ID)
	// The client's own option cuts the time to whole seconds, so the job would begin too early. The
	// server reads nanoseconds.
	first := m.Header
	m.Header = nats.Header{
		headerSchedule: {"@at " + scheduled(j.NotBefore).UTC().Format(time.RFC3339Nano)},
		headerTarget:   {s.Due(j.ID)},

		jetstream.ExpectedLastSubjSeqHeader: {"0"},
	}
	natsconn.CopyTrace(m, first)
	copyLevel(m, first)
	err := q.conn.PublishMsg(ctx, q.conn.RetryUnlessFull, what, m)
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	}
	return err
}

// Mover moves delayed jobs that are due into their queues. Every worker runs one. A job that two of
// them move is still one job, because its subject is taken or its result exists.
type Mover struct {
	q   *Queue
	log *slog.Logger
}

// NewMover returns the mover of one worker. It moves nothing before Run.
func NewMover(q *Queue, log *slog.Logger) *Mover { return &Mover{q: q, log: log} }

// movePeriod is the longest delay of a job that is due. W workers ask the server 4 W times per
// second.
const movePeriod = 250 * time.Millisecond

// Run moves jobs until ctx ends. Errors are logged and tried again.
func (d *Mover) Run(ctx context.Context) {
	q := d.q
	p := natsconn.NewPuller(q.conn.NC, func() func(error) { return q.conn.Timed(natsconn.OpFetch) })
	defer p.Close()
	tick := time.NewTicker(movePeriod)
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
					d.log.Warn("delayed jobs wait", "error", err)
				}
				continue
			}
			known = true
		}
		for {
			// It waits at the server, which finds a message then that it does not count as pending.
			msgs, err := p.Pull(ctx, wire.SchedStream, promoter,
				natsconn.PullRequest{Messages: 64, Wait: natsconn.ReadWait})
			known = known && !errors.Is(err, natsconn.ErrNoConsumer)
			for _, m := range msgs {
				d.move(context.WithoutCancel(ctx), m)
			}
			if len(msgs) < 64 {
				break
			}
		}
	}
}

// move queues the job of one message and acknowledges the message. An id without a valid form is
// queued too: its worker makes a dead letter of it.
func (d *Mover) move(ctx context.Context, m *nats.Msg) {
	q := d.q
	s, id, ok := wire.ParseSubject(m.Subject)
	if !ok || id == "" {
		d.log.Error("message dropped: it is on no job's subject", "subject", m.Subject)
		_ = m.Respond([]byte("+TERM"))
		return
	}
	err := jobs.CheckID("job id", id)
	if err == nil {
		_, err = q.results.Lookup(ctx, id)
	}
	if err != nil {
		if s, err = q.moveTo(ctx, s, m.Header); err == nil {
			err = q.EnsureConsumer(ctx, s)
		}
		if err == nil {
			out := &nats.Msg{Subject: s.Job(id), Data: m.Data}
			natsconn.CopyTrace(out, m.Header)
			copyLevel(out, m.Header)
			err = q.conn.PublishMsg(ctx, q.conn.RetryIdempotent, "queue job "+id, out)
		}
		if exists, full := natsconn.Rejected(err); exists {
			err = nil
		} else if full {
			err = jobs.ErrFull
		}
	}
	if err != nil {
		d.log.Warn("delayed job not queued yet", "job", id, "error", err)
		_ = m.NakWithDelay(Backoff(2))
		return
	}
	_ = m.Ack() // if it is lost, the next move finds the job in its queue, or its result
}

// scheduled returns at, or the last time that the server can represent. The server counts
// nanoseconds in 64 bits, and takes a time after the year 2262 as one in the past.
func scheduled(at time.Time) time.Time {
	if last := time.Unix(0, 1<<63-1).Add(-24 * time.Hour); at.After(last) {
		return last
	}
	return at
}
