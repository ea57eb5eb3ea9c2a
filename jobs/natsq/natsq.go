// Package natsq carries the protocol of package jobs over NATS JetStream. It is the only importer
// of the NATS client.
package natsq

import (
	"context"
	"log/slog"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/deadletters"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/joblog"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/publishmode"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/results"
	"github.com/exoswarm/exoswarm/jobs/natsq/schedules"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/natsq/userstream"
)

// Conn is a connection to the queue. Its methods may be called from several goroutines.
type Conn struct {
	*natsconn.Conn
	Registry  *registry.Registry
	Queue     *queue.Queue
	Control   *control.Control
	Results   *results.Results
	Letters   *deadletters.Store
	Schedules *schedules.Schedules
	Logs      *joblog.Logs
	Swarms    *swarmlog.Swarms
	Streams   *userstream.Streams
	Objects   *objects.Store

	resultsMode publishmode.Mode
}

// StreamJobs are the parts of a connection that the handler of stream jobs needs. It implements
// cpuagents.Queue.
type StreamJobs struct {
	*results.Results
	*swarmlog.Swarms
	*userstream.Streams
}

// StreamJobs returns the parts of the connection that the handler of stream jobs needs.
func (c *Conn) StreamJobs() StreamJobs { return StreamJobs{c.Results, c.Swarms, c.Streams} }

// Connect reaches the server, checks that it has JetStream, and creates the streams and buckets of
// the protocol where they do not exist; those that exist it leaves as they are. The error says
// which of these failed and what to do.
func Connect(ctx context.Context, o natsconn.Options) (*Conn, error) {
	k, err := natsconn.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		Conn: k, Control: control.New(k), Results: results.New(k), Registry: registry.New(k),
		Streams: userstream.New(k),
	}
	c.Objects = objects.New(k, func(ctx context.Context, job string) (bool, error) { return c.Queue.Known(ctx, job) })
	c.Letters = deadletters.New(k, func(ctx context.Context, j jobs.Job, forgiven uint64) error {
		return c.Queue.Resubmit(ctx, j, forgiven)
	})
	c.Queue = queue.New(k, c.Registry, c.Objects, c.Control, c.Results, c.Letters)
	c.Schedules = schedules.New(k, c.Queue)
	c.Logs = joblog.New(k, c.Queue, c.Results)
	c.Swarms = swarmlog.New(k, c.Registry, c.Queue)
	return c, nil
}

// Serve starts a gateway, which runs until Close. It answers when Serve returns.
func (c *Conn) Serve(log *slog.Logger) (*gateway.Gateway, error) {
	return gateway.Serve(c.Conn, gateway.Parts{
		Jobs: c.Queue, Results: c.Results, Letters: c.Letters, Pools: c.Registry,
		Schedules: c.Schedules, Logs: c.Logs,
	}, log)
}
