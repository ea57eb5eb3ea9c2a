// Package natsq carries the protocol of package jobs over NATS JetStream. It is the only importer of the NATS client.
package natsq

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/publishmode"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/natsq/userstream"
)

// Conn is a connection to the queue. Its methods may be called from several goroutines.
type Conn struct {
	*natsconn.Conn
	Registry *registry.Registry
	Swarms   *swarmlog.Swarms
	Streams  *userstream.Streams
	Objects  *objects.Store

	sources sync.Map     // source: its consumer was seen
	tenants sync.Map     // pool and tenant: *submitted
	askEach atomic.Int64 // until when, in Unix nanoseconds, noneAtOnce is not tried

	intake      intake
	jobsMode    publishmode.Mode // of the streams of jobs
	resultsMode publishmode.Mode
	metrics     atomic.Pointer[Metrics] // nil: refused submissions are not counted
}

// StreamJobs are the parts of a connection that the handler of stream jobs needs. It implements
// cpuagents.Queue.
type StreamJobs struct {
	*Conn
	*swarmlog.Swarms
	*userstream.Streams
}

// StreamJobs returns the parts of the connection that the handler of stream jobs needs.
func (c *Conn) StreamJobs() StreamJobs { return StreamJobs{c, c.Swarms, c.Streams} }

// Connect reaches the server, checks that it has JetStream, and creates the streams and buckets of the protocol where they
// do not exist; those that exist it leaves as they are. The error says which of these failed and what to do.
func Connect(ctx context.Context, o natsconn.Options) (*Conn, error) {
	k, err := natsconn.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: k, Registry: registry.New(k), Streams: userstream.New(k)}
	c.intake.c = c
	c.Swarms = swarmlog.New(k, c.Registry, c)
	c.Objects = objects.New(k, c.standing)
	return c, nil
}
