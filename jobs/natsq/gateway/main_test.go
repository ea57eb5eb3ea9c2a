package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/joblog"
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

// reached is a connection with the parts that a gateway offers.
type reached struct {
	*natsconn.Conn
	Queue *queue.Queue
	parts Parts
}

func (r reached) Serve(log *slog.Logger) (*Gateway, error) { return Serve(r.Conn, r.parts, log) }

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, reached) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, another(t, s)
}

// another connects to a server once more.
func another(t testing.TB, s *server.Server) reached {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var q *queue.Queue
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return q.Known(ctx, job) })
	agents := registry.New(c)
	r := queue.NewResults(c)
	letters := queue.NewDeadLetters(c, func(ctx context.Context, d jobs.DeadLetter, j jobs.Job, forgiven uint64) error {
		return q.Resubmit(ctx, d, j, forgiven)
	})
	q = queue.New(c, agents, o, control.New(c), r, letters)
	return reached{c, q, Parts{
		Jobs: q, Results: r, Letters: letters, Schedules: queue.NewSchedules(c, q),
		Logs: joblog.New(c, q, r),
	}}
}

func plain(id string, after ...string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: json.RawMessage("1"),
		After: after,
	}
}
