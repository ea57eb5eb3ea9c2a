package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.Check(m)
}

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) (*server.Server, *Queue) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, another(t, s)
}

// another connects to a server once more.
func another(t testing.TB, s *server.Server) *Queue {
	t.Helper()
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var q *Queue
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return q.Known(ctx, job) })
	q = New(c, registry.New(c), o, control.New(c), NewResults(c), NewDeadLetters(c, nil))
	return q
}

func plain(id string, after ...string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: json.RawMessage("1"),
		After: after,
	}
}

// queueOf returns a queue with n jobs at the source that it returns.
func queueOf(t testing.TB, n int) (*Queue, wire.Source, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	_, q := inside(t)
	if n == 0 {
		return q, wire.Source{}, ctx
	}
	var batch []jobs.Job
	for i := range n {
		batch = append(batch, plain(fmt.Sprint("j", i)))
	}
	if err := q.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	return q, wire.SourceOf(batch[0]), ctx
}

// sourcesOf returns the sources of jobs of the default level.
func sourcesOf(batch []jobs.Job) (all []wire.Source) {
	for _, j := range batch {
		all = append(all, wire.SourceOf(j))
	}
	return all
}
