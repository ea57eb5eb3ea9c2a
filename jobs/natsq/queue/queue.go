// Package queue submits jobs and follows them: results, dependencies, delays, dead letters and the limits of
// submissions. It executes none.
package queue

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/publishmode"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Queue is the client's side of the work queue. Its methods may be called from several goroutines.
type Queue struct {
	conn    *natsconn.Conn
	agents  Agents
	objects Objects

	sources sync.Map     // wire.Source: its consumer exists
	tenants sync.Map     // pool and tenant: *submitted
	askEach atomic.Int64 // until this Unix time in nanoseconds noneAtOnce is not tried
	batcher submitBatcher
	mode    publishmode.Mode // of submissions
	refused atomic.Pointer[func(p jobs.Pool, tenant string)]
}

// Agents lists the agents and the kinds that they serve. It is a *registry.Registry.
type Agents interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
	Served(ctx context.Context, p jobs.Pool) (map[string]int, error)
}

// Objects keeps the specifications that are too large for a message. It is an *objects.Store.
type Objects interface {
	PutNamed(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
	OpenNamed(ctx context.Context, name string) (io.ReadCloser, error)
	DeleteObject(ctx context.Context, name string, of jobs.Owner) error
}

// New returns the queue that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn, a Agents, o Objects) *Queue {
	q := &Queue{conn: c, agents: a, objects: o}
	q.batcher.q = q
	return q
}

// OnRefused has fn called for every submission that is refused because the tenant has as many jobs in
// the queue as it may. A later call replaces fn.
func (q *Queue) OnRefused(fn func(p jobs.Pool, tenant string)) { q.refused.Store(&fn) }

func (q *Queue) tenantRefused(p jobs.Pool, tenant string) {
	if fn := q.refused.Load(); fn != nil {
		(*fn)(p, tenant)
	}
}

// Forget makes the next submission to a source look for its consumer again. A worker calls it when it
// has found that the consumer is gone.
func (q *Queue) Forget(s wire.Source) { q.sources.Delete(s) }
