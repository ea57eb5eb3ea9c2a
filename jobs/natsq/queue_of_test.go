package natsq

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// connected returns a connection to a new server, and a context for two minutes.
func connected(t *testing.T) (*Conn, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return jobstest.Connected(t, Connect), ctx
}

// queueOf is connected with n jobs at the source that it returns, without the parts.
func queueOf(t *testing.T, n int) (*natsconn.Conn, wire.Source, context.Context) {
	t.Helper()
	c, ctx := connected(t)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("j", i)
	}
	src := submit(ctx, t, c.Conn, ids...)
	testkit.Until(t, "the consumer knows the stored jobs", func() bool {
		cons, err := c.JS.Consumer(ctx, src.Stream(), src.Consumer())
		if err != nil {
			t.Fatal(err)
		}
		return cons.CachedInfo().NumPending == uint64(n)
	})
	return c.Conn, src, ctx
}

// queued lists the ids of the jobs of a source that are in the queue.
func queued(ctx context.Context, t *testing.T, c *natsconn.Conn, s wire.Source) (ids []string) {
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
func awaitQueued(ctx context.Context, t *testing.T, c *natsconn.Conn, s wire.Source, want ...string) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("jobs %v are queued", want), func() bool {
		return slices.Equal(queued(ctx, t, c, s), want)
	})
}

// submit queues jobs of one source, which it returns.
func submit(ctx context.Context, t *testing.T, c *natsconn.Conn, ids ...string) wire.Source {
	t.Helper()
	o := objects.New(c, func(context.Context, string) (bool, error) { return true, nil })
	q := queue.New(c, telemetry.NewRegistry(c), o, control.New(c), queue.NewResults(c))
	batch := make([]jobs.Job, len(ids))
	for i, id := range ids {
		batch[i] = plain(id)
	}
	if err := q.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	return wire.SourceOf(batch[0])
}
