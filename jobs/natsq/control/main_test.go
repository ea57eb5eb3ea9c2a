package control

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.Check(m)
}

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, submitter) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, another(t, s)
}

// another connects to a server once more.
func another(t testing.TB, s *server.Server) submitter {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return submitter{New(c)}
}

// submitter stores jobs that Admit admits.
type submitter struct{ *Control }

func (s submitter) Submit(ctx context.Context, j jobs.Job) error {
	return s.SubmitBatch(ctx, []jobs.Job{j})
}

func (s submitter) SubmitBatch(ctx context.Context, batch []jobs.Job) error {
	if err := s.Admit(ctx, batch...); err != nil {
		return err
	}
	for _, j := range batch {
		m := &nats.Msg{Subject: wire.SourceOf(j).Job(j.ID), Data: j.Spec}
		if err := s.conn.PublishMsg(ctx, s.conn.RetryIdempotent, "submit", m); err != nil {
			return err
		}
	}
	return nil
}

func plain(id string, after ...string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: json.RawMessage("1"),
		After: after,
	}
}
