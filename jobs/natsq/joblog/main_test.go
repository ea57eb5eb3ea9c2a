package joblog

import (
	"context"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.Check(m)
}

// over answers that every job exists and has a result.
type over struct{}

func (over) Known(context.Context, string) (bool, error) { return true, nil }

func (over) Lookup(_ context.Context, id string) (jobs.Result, error) {
	return jobs.Result{Version: jobs.Version, JobID: id, Status: jobs.Done}, nil
}

// inside starts a server without a port, and connects to it.
func inside(t *testing.T) *Logs {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return New(c, over{}, over{})
}
