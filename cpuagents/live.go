package cpuagents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/internal/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Answers to rows that a job sends to its submitter.
const (
	RowsTaken = "ok"   // they are written: the next may come
	RowsWait  = "wait" // they are being written: ask again
	RowsStop  = "stop" // nobody reads any more
)

const (
	// liveBytes bounds a message of rows, whatever the server's limit.
	liveBytes = 256 << 10
	// liveAnswer is how long an answer may take. The submitter answers RowsWait before.
	liveAnswer = 5 * time.Second
	// livePatience is how long the submitter may be silent. Then the job goes on without it, to its output.
	livePatience = 30 * time.Second
)

// liveTap sends every decision to the submitter of the job as it is made, and waits until it is written. A message is a line with the numbers
// of batch and piece, and then decisions in NDJSON. Another attempt sends the same messages: the submitter knows those that it has.
type liveTap struct {
	queue Queue
	log   *slog.Logger
	job   string
	enc   encode.Encoder
	rows  []byte
	gone  bool // nobody reads
}

// open implements tap: it keeps no position.
func (t *liveTap) open(context.Context, jobs.Log) error { return nil }

func (t *liveTap) end(context.Context) error { return nil }

func (t *liveTap) close() {}

// send implements tap.
func (t *liveTap) send(ctx context.Context, number uint64, d *batch.Decisions) error {
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

// ask sends a message until the submitter has written it. Without a submitter it gives up.
func (t *liveTap) ask(ctx context.Context, message []byte) error {
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
			t.log.Warn("the submitter of a job takes no rows any more; they are in its output alone", "job", t.job, "error", err)
			t.gone = true
			return nil
		}
		if err := retry.Sleep(ctx, 200*time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}
