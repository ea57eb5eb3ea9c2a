package queue

import (
	"context"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// over answers that every job exists and has a result.
type over struct{}

func (over) Known(context.Context, string) (bool, error) { return true, nil }

func (over) Lookup(_ context.Context, id string) (jobs.Result, error) {
	return jobs.Result{Version: jobs.Version, JobID: id, Status: jobs.Done}, nil
}

// TestLogsTwice: a turn whose acknowledgement was lost is tried again and stores nothing twice.
func TestLogsTwice(t *testing.T) {
	_, k := jobstest.InProcess(t, natsconn.Open)
	c := NewLogs(k, over{}, over{})
	b := &LogWriter{c: c.conn, log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1)}
	both := []*LogLines{{writer: b, id: "a", ttl: "60s"}, {writer: b, id: "b", ttl: "60s"}}
	for _, l := range both {
		slog.New(slog.NewJSONHandler(l, nil)).Info("once")
	}
	b.now = b.take()
	if err := c.conn.PublishBatchOnce(t.Context(), b.now.msgs); err != nil {
		t.Fatal(err)
	}
	if more := b.store(t.Context()); more || b.now != nil || b.held != 0 || both[0].dropped != 0 {
		t.Errorf("more %v, %+v under way, %d bytes held, %d dropped", more, b.now, b.held, both[0].dropped)
	}
	for _, l := range both {
		n := 0
		if err := c.Logs(t.Context(), l.id, false,
			func(m jobs.LogLines) error { n += len(m.Lines); return nil }); err != nil || n != 1 {
			t.Errorf("%d lines of %s, %v", n, l.id, err)
		}
	}
}

// TestLogsHeld: what a worker holds for jobs while nothing can be stored is bounded, in bytes and
// in jobs.
func TestLogsHeld(t *testing.T) {
	b := &LogWriter{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1)}
	line := make([]byte, 1000)
	for i := range line {
		line[i] = '1'
	}
	const all = 3 * logHeld / 1000
	dropped := 0
	for range all {
		l := &LogLines{writer: b}
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
		dropped += l.dropped
	}
	if b.held > logHeld || len(b.dirty) > logHeld/1000 || dropped != all-len(b.dirty) {
		t.Errorf("%d bytes of %d jobs, %d lines dropped", b.held, len(b.dirty), dropped)
	}
}
