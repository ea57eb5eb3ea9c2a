package swarmlog

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// maxParallel is how many tests run at a time. They mostly wait.
const maxParallel = 8

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, maxParallel)
}

// ended answers that every job is over.
type ended struct{}

func (ended) Over(context.Context, string) (bool, error) { return true, nil }

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, *Swarms) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, another(t, s)
}

// another connects to a server once more, as another writer.
func another(t testing.TB, s *server.Server) *Swarms {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return New(c, registry.New(c), ended{})
}
