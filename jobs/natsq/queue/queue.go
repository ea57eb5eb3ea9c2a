package queue

import (
	"context"
	"io"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Queue is the client's side of the work queue: it submits, lists, withdraws and cancels jobs. Its
// methods may be called from several goroutines. Each call ends with its context, or with the
// patience of the connection.
type Queue struct {
	finder
	agents  Agents
	objects Objects
	limits  Limits
	results *Results

	sources sync.Map // wire.Source: this connection has seen its consumer
	counts  sync.Map // stream and pool: counted
	batcher submitBatcher
	readers readers
}

// Agents lists the agents and the kinds that they serve. It is a *telemetry.Registry. Its answers
// are hints: an agent may have ended some seconds ago.
type Agents interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
	// Served returns the number of agents of a pool by kind.
	Served(ctx context.Context, p jobs.Pool) (map[string]int, error)
}

// Objects keeps the specifications that are too large for a message. It is an *objects.Store.
type Objects interface {
	// PutNamed stores an object of a job and replaces an earlier one of the name. It returns the
	// size.
	PutNamed(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
	// OpenNamed fails with jobs.ErrNotFound if there is no such object. The caller closes the
	// reader.
	OpenNamed(ctx context.Context, name string) (io.ReadCloser, error)
	// DeleteObject returns nil if there is no such object.
	DeleteObject(ctx context.Context, name string, of jobs.Owner) error
}

// Limits is what operators tell the workers of a pool. It is a *control.Control.
type Limits interface {
	// Admit fails with jobs.ErrFull if a tenant of the jobs may have no more in the queue.
	Admit(ctx context.Context, batch ...jobs.Job) error
	// PausedKeys returns the keys of all present pauses, see wire.PauseKey.
	PausedKeys(ctx context.Context) (map[string]bool, error)
}

// New returns the queue that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn, a Agents, o Objects, l Limits, r *Results) *Queue {
	q := &Queue{finder: finder{c}, agents: a, objects: o, limits: l, results: r}
	q.batcher.q = q
	return q
}

// Forget makes the next submission to a source check for its consumer again. A worker calls it when
// it has found that the consumer is gone.
func (q *Queue) Forget(s wire.Source) { q.sources.Delete(s) }

// Admit fails with jobs.ErrFull if the tenant of a job may have no more in the queue. Otherwise the
// job counts as submitted: the caller stores it.
func (q *Queue) Admit(ctx context.Context, j jobs.Job) error { return q.limits.Admit(ctx, j) }
