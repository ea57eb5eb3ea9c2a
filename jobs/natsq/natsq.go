package natsq

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Conn is a connection to the queue, as its parts. Connect sets all fields, and they must not be
// changed. The parts share one connection to the server. All methods may be called from several
// goroutines.
type Conn struct {
	*natsconn.Conn
	Registry  *telemetry.Registry
	Queue     *queue.Queue
	Control   *control.Control
	Results   *queue.Results
	Letters   *queue.DeadLetters
	Schedules *queue.Schedules
	Logs      *queue.Logs
	Swarms    *swarmlog.Swarms
	Streams   *Streams
	Objects   *objects.Store
	Telemetry *telemetry.Telemetry
	Servers   *telemetry.Servers
	Audit     *control.Audit

	resultsMode wire.PublishMode
}

// StreamJobs are the parts of a connection that the handler of stream jobs needs: results, swarms
// and streams of users. It implements cpuagents.Queue.
type StreamJobs struct {
	*queue.Results
	*swarmlog.Swarms
	*Streams
}

// StreamJobs returns the parts of the connection that the handler of stream jobs needs. They are
// valid until the connection is closed.
func (c *Conn) StreamJobs() StreamJobs { return StreamJobs{c.Results, c.Swarms, c.Streams} }

// Connect connects to a server, checks that it has JetStream, and creates the missing streams and
// buckets of the protocol. It leaves existing ones as they are. The error tells which of these
// steps failed, and what to do. The caller closes the connection after everything that uses it.
func Connect(ctx context.Context, o natsconn.Options) (*Conn, error) {
	k, err := natsconn.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		Conn: k, Control: control.New(k), Results: queue.NewResults(k), Registry: telemetry.NewRegistry(k),
		Streams: newStreams(k), Telemetry: telemetry.New(k), Servers: telemetry.NewServers(k),
		Audit: control.NewAudit(k),
	}
	// Each part gets parts that exist already.
	c.Objects = objects.New(k, func(ctx context.Context, job string) (bool, error) { return queue.Known(ctx, k, job) })
	c.Queue = queue.New(k, c.Registry, c.Objects, c.Control, c.Results)
	c.Letters = queue.NewDeadLetters(k, c.Queue)
	c.Schedules = queue.NewSchedules(k, c.Queue)
	c.Logs = queue.NewLogs(k, c.Queue, c.Results)
	c.Swarms = swarmlog.New(k, c.Registry, c.Queue)
	return c, nil
}
