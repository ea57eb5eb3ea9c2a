package gateway

import (
	"context"
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

// queueOf returns the queue of a connection.
func queueOf(c *natsconn.Conn) *queue.Queue {
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return queue.Known(ctx, c, job) })
	return queue.New(c, telemetry.NewRegistry(c), o, control.New(c), queue.NewResults(c))
}

func plain(id string, after ...string) jobs.Job { return jobstest.Job(id, "k", after...) }
