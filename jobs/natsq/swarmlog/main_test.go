package swarmlog

import (
	"context"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// maxParallel is how many tests run at a time. They mostly wait.
const maxParallel = 8

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, maxParallel)
}

// ended answers that every job is over.
type ended struct{}

func (ended) Over(context.Context, string) (bool, error) { return true, nil }

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, *Swarms) {
	t.Helper()
	s, c := jobstest.InProcess(t, natsconn.Open)
	return s, New(c, telemetry.NewRegistry(c), ended{})
}
