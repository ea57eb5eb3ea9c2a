package gateway

import (
	"context"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// reached is a connection with the parts that a gateway offers.
type reached struct {
	*natsconn.Conn
	Queue *queue.Queue
	parts Parts
}

func (r reached) Serve(log *slog.Logger) (*Gateway, error) { return Serve(r.Conn, r.parts, log) }

// reach returns the connection with its parts.
func reach(c *natsconn.Conn) reached {
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return queue.Known(ctx, c, job) })
	r := queue.NewResults(c)
	q := queue.New(c, telemetry.NewRegistry(c), o, control.New(c), r)
	return reached{c, q, Parts{
		Jobs: q, Results: r, Letters: queue.NewDeadLetters(c, q), Schedules: queue.NewSchedules(c, q),
		Logs: queue.NewLogs(c, q, r),
	}}
}

func plain(id string, after ...string) jobs.Job { return jobstest.Job(id, "k", after...) }
