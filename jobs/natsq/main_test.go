package natsq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// bareQueueOf returns a connection to a server of its own, with n jobs at the source that it returns.
func bareQueueOf(t *testing.T, n int) (*natsconn.Conn, wire.Source, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s, err := server.Start(ctx, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := natsconn.Open(ctx, natsconn.Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if n == 0 {
		return c, wire.Source{}, ctx
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("j", i)
	}
	src := submit(ctx, t, c, ids...)
	for { // the consumer learns of a stored job some microseconds later
		cons, err := c.JS.Consumer(ctx, src.Stream(), src.Consumer())
		if err != nil {
			t.Fatal(err)
		}
		if cons.CachedInfo().NumPending == uint64(n) {
			return c, src, ctx
		}
	}
}

// submit queues jobs of one source, which it returns.
func submit(ctx context.Context, t *testing.T, c *natsconn.Conn, ids ...string) wire.Source {
	t.Helper()
	o := objects.New(c, func(context.Context, string) (bool, error) { return true, nil })
	q := queue.New(c, registry.New(c), o, control.New(c), queue.NewResults(c), queue.NewDeadLetters(c, nil))
	batch := make([]jobs.Job, len(ids))
	for i, id := range ids {
		batch[i] = jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1")}
	}
	if err := q.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	return wire.SourceOf(batch[0])
}
