package swarmlog_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestClosedReaders: closed readers leave no consumers, and the consumer of an open reader stays.
func TestClosedReaders(t *testing.T) {
	s := jobstest.Start(t, server.Options{Dir: t.TempDir()})
	c := jobstest.Open(t, s, natsq.Connect)
	l := c.Swarms.Log("x", 0, swarms.In)
	if err := l.Create(t.Context()); err != nil {
		t.Fatalf("Create: %v", err)
	}
	if err := l.Append(t.Context(), 0, swarms.Entry{Kind: "tick", Ref: 1}); err != nil {
		t.Fatalf("Append: %v", err)
	}
	open, err := l.Read(t.Context(), 1)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer open.Close()
	for range 50 {
		r, err := l.Read(t.Context(), 1)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatalf("Next: %v", err)
		}
		r.Close()
		r.Close()
	}
	js := jobstest.Open(t, s, natsconn.Open).JS
	testkit.Until(t, "one consumer is left", func() bool {
		of, err := js.Stream(t.Context(), "EXO_LOG_x_0_in")
		if err != nil {
			t.Fatalf("Stream: %v", err)
		}
		return of.CachedInfo().State.Consumers == 1
	})
	if e, err := open.Next(t.Context()); err != nil || e.Seq != 1 {
		t.Errorf("Next: entry %d, error %v", e.Seq, err)
	}
}
