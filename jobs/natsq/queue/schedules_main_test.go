package queue

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// insideSchedules starts a server without a port, and connects to it.
func insideSchedules(t testing.TB) (*server.Server, *Schedules) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, anotherSchedules(t, s)
}

// anotherSchedules connects to a server once more.
func anotherSchedules(t testing.TB, s *server.Server) *Schedules {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var q *Queue
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return q.Known(ctx, job) })
	q = New(c, registry.New(c), o, control.New(c), NewResults(c), NewDeadLetters(c, nil))
	return NewSchedules(c, q)
}
