package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Answers to rows that a job sends to its submitter.
const (
	RowsTaken = "ok"   // the rows are written, and the job may send the next ones
	RowsWait  = "wait" // the rows are being written, and the job must ask again
	RowsStop  = "stop" // nobody reads rows any more
)

const (
	// liveBytes bounds a message of rows in bytes, whatever the limit of the server.
	liveBytes = 256 << 10
	// liveAnswer bounds the time to an answer. The submitter answers RowsWait earlier.
	liveAnswer = 5 * time.Second
	// livePatience is the time that the submitter may be silent. After it the job continues without
	// the submitter.
	livePatience = 30 * time.Second
)

// liveSink sends every decision to the submitter of the job, and waits until it is written. A
// message is a line with the numbers of batch and piece, then decisions in NDJSON. Another attempt
// sends the same messages, and the submitter drops the messages that it has.
type liveSink struct {
	queue Queue
	log   *slog.Logger
	job   string
	enc   rows.Encoder
	rows  []byte
	gone  bool // the submitter reads no rows any more
}

// NewLive returns the sink that sends every decision of a job to its submitter.
func NewLive(job string, l rows.Layout, queue Queue, log *slog.Logger) Sink {
	return &liveSink{queue: queue, log: log, job: job, enc: rows.NewNDJSONEncoder(l)}
}

// Open implements Sink: it keeps no position.
func (t *liveSink) Open(context.Context, swarms.Log) error { return nil }

// End implements Sink: nothing is held back.
func (t *liveSink) End(context.Context) error { return nil }

// Close implements Sink: there is no connection to close.
func (t *liveSink) Close() {}

// Send implements Sink. It returns when the submitter has written the rows, so a slow reader slows
// the job. It sends nothing more after the submitter is gone. A row is never split.
func (t *liveSink) Send(ctx context.Context, number uint64, d *batch.Decisions) error {
	t.rows = t.rows[:0]
	for i := range d.Len() {
		t.rows = t.enc.Spool(t.rows, d, i)
	}
	rest := t.rows
	for piece := 0; len(rest) > 0 && !t.gone; piece++ {
		n := len(rest)
		if n > liveBytes {
			if n = bytes.LastIndexByte(rest[:liveBytes], '\n') + 1; n == 0 { // a row of its own
				n = bytes.IndexByte(rest, '\n') + 1
			}
		}
		message := append(fmt.Appendf(nil, "%d %d\n", number, piece), rest[:n]...)
		rest = rest[n:]
		if err := t.ask(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a message until the submitter has written it, or is gone. The submitter drops a
// repeated message by its numbers. Only the end of ctx is an error.
func (t *liveSink) ask(ctx context.Context, message []byte) error {
	heard := time.Now()
	for {
		one, cancel := context.WithTimeout(ctx, liveAnswer)
		answer, err := t.queue.SendRows(one, t.job, message)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && string(answer) == RowsTaken:
			return nil
		case err == nil && string(answer) == RowsStop:
			t.gone = true
			return nil
		case err == nil:
			heard = time.Now()
			continue
		case time.Since(heard) > livePatience:
			t.log.Warn(
				"the submitter of a job takes no rows any more; they are in its output alone", "job", t.job, "error",
				err,
			)
			t.gone = true
			return nil
		}
		if err := retry.Sleep(ctx, 200*time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}
