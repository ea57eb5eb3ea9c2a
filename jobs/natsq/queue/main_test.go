package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// newQueue returns the queue that a connection reaches.
func newQueue(c *natsconn.Conn) *Queue {
	o := objects.New(c, func(ctx context.Context, job string) (bool, error) { return Known(ctx, c, job) })
	return New(c, telemetry.NewRegistry(c), o, control.New(c), NewResults(c))
}

// inside starts a server without a port, and connects to it.
func inside(t testing.TB) *Queue {
	t.Helper()
	_, c := jobstest.InProcess(t, natsconn.Open)
	return newQueue(c)
}

func plain(id string, after ...string) jobs.Job { return jobstest.Job(id, "k", after...) }

// numbered returns n jobs whose ids are a name and a number.
func numbered(name string, n int) (all []jobs.Job) {
	for i := range n {
		all = append(all, plain(fmt.Sprint(name, i)))
	}
	return all
}

// queueOf returns a queue with n jobs at the source that it returns.
func queueOf(t testing.TB, n int) (*Queue, wire.Source, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	q := inside(t)
	if n == 0 {
		return q, wire.Source{}, ctx
	}
	batch := numbered("j", n)
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
