package schedules

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/internal/tempdir"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.Check(m)
}

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, *Schedules) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, another(t, s)
}

// another connects to a server once more.
func another(t testing.TB, s *server.Server) *Schedules {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var q *queue.Queue
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return q.Known(ctx, job) })
	q = queue.New(c, registry.New(c), o, control.New(c), queue.NewResults(c), queue.NewDeadLetters(c, nil))
	return New(c, q)
}
