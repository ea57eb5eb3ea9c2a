package swarmlog_test

import (
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsqtest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestClosedReaders: readers that are closed leave no consumers behind, and one that is open stays.
func TestClosedReaders(t *testing.T) {
	s := natsqtest.Start(t, server.Options{Dir: t.TempDir()})
	c := natsqtest.Connect(t, s)
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
	js, end := natsqtest.JetStream(t, s), time.Now().Add(30*time.Second)
	for {
		of, err := js.Stream(t.Context(), "EXO_LOG_x_0_in")
		if err != nil {
			t.Fatalf("Stream: %v", err)
		}
		n := of.CachedInfo().State.Consumers
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d consumers, want 1", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if e, err := open.Next(t.Context()); err != nil || e.Seq != 1 {
		t.Errorf("Next: entry %d, error %v", e.Seq, err)
	}
}
