package queue_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// parts are a store of dead letters and what its tests look at besides.
type parts struct {
	*queue.DeadLetters
	conn    *natsconn.Conn
	queue   *queue.Queue
	results *queue.Results
}

// connect starts a server without a port, and connects to it.
func connect(t testing.TB) parts {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p := parts{conn: c, results: queue.NewResults(c)}
	p.DeadLetters = queue.NewDeadLetters(c, func(
		ctx context.Context, d jobs.DeadLetter, j jobs.Job, forgiven uint64,
	) error {
		return p.queue.Resubmit(ctx, d, j, forgiven)
	})
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return p.queue.Known(ctx, job) })
	p.queue = queue.New(c, registry.New(c), o, control.New(c), p.results, p.DeadLetters)
	return p
}

func plain(id string) jobs.Job {
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: json.RawMessage("1")}
}
