package natsq

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// queueOf is a connection to a server of its own, with n jobs waiting at the source that is
// returned.
func queueOf(t *testing.T, n int) (*Conn, wire.Source, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s, err := server.Start(ctx, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := Connect(ctx, natsconn.Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	batch := make([]jobs.Job, n)
	for i := range batch {
		batch[i] = simpleJob(fmt.Sprint("j", i))
	}
	if n == 0 {
		return c, wire.Source{}, ctx
	}
	if err := c.Queue.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	src := wire.SourceOf(batch[0])
	for { // its consumer hears of what was stored some microseconds after it was
		cons, err := c.JS.Consumer(ctx, src.Stream(), src.Consumer())
		if err != nil {
			t.Fatal(err)
		}
		if cons.CachedInfo().NumPending == uint64(n) {
			return c, src, ctx
		}
	}
}

func simpleJob(id string) jobs.Job {
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1")}
}

// queued lists the ids of the jobs of a source that are in the queue.
func queued(ctx context.Context, t *testing.T, c *Conn, s wire.Source) (ids []string) {
	t.Helper()
	for seq := uint64(1); ; seq++ {
		m, err := c.NextOnce(ctx, s.Stream(), s.Job("*"), seq)
		if err != nil {
			return ids
		}
		_, id, _ := wire.ParseSubject(m.Subject)
		ids, seq = append(ids, id), m.Seq
	}
}

// awaitQueued waits until exactly these jobs are in the queue: acknowledgements are not waited for.
func awaitQueued(ctx context.Context, t *testing.T, c *Conn, s wire.Source, want ...string) {
	t.Helper()
	for {
		got := queued(ctx, t, c, s)
		if slices.Equal(got, want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("queued: %v, want %v", got, want)
		}
	}
}
