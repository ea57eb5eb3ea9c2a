// Package natsq carries the protocol of package jobs over NATS JetStream. It is the only importer of the NATS client.
package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/publishmode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Options configure a connection.
type Options struct {
	// URL of the server, as in nats://127.0.0.1:4222; several with commas between. Ignored with InProcess.
	URL string
	Login
	// InProcess connects to a server in this process.
	InProcess interface{ InProcessConn() (net.Conn, error) }
	// Name shows up in the server's list of connections.
	Name string
	// Replicas of every stream: 1 for a single server, 3 for a cluster. 0 means 1.
	Replicas int
	// Lease is how long a worker that says nothing keeps a job; it says so three times as often. 0 means 15 s. All connections to a queue
	// must have the same.
	Lease time.Duration
	// Bare leaves the server as it is: nothing is created. It is for Plan.
	Bare bool
	// Patience is how long a call keeps trying while the server cannot be reached; 0 means 30 s.
	Patience time.Duration
	// Logger is told once when the connection is lost and once when it is back, and of what the server refuses in the background; nil for
	// nobody.
	Logger *slog.Logger
	// GiveUp ends a connection that has been without a server for so long, for good: Lost is closed and every call fails with
	// jobs.ErrUnavailable. It is for commands, which somebody waits for; 0, for agents, means never.
	GiveUp time.Duration
	// Tracing makes spans of what goes over the connection, joined by the headers of messages; nil for none, and then headers are neither
	// written nor looked at. It belongs to the caller, who flushes it after Close.
	Tracing trace.TracerProvider
}

// Conn is a connection to the queue. Its methods may be called from several goroutines.
type Conn struct {
	nc       *nats.Conn
	refused  *refusals
	elected  *elections
	js       jetstream.JetStream
	writer   string // distinguishes this connection's appends from those of others
	replicas int
	patience time.Duration
	ackWait  time.Duration
	sources  sync.Map     // source: its consumer was seen
	tenants  sync.Map     // pool and tenant: *submitted
	tracer   trace.Tracer // nil: nothing is traced
	askEach  atomic.Int64 // until when, in Unix nanoseconds, noneAtOnce is not tried

	intake      intake
	jobsMode    publishmode.Mode // of the streams of jobs
	resultsMode publishmode.Mode
	logsMode    publishmode.Mode        // of those of shards
	metrics     atomic.Pointer[Metrics] // nil: refused submissions are not counted
}

// Connect reaches the server, checks that it has JetStream, and creates the streams and buckets of the protocol where they
// do not exist; those that exist it leaves as they are. The error says which of these failed and what to do.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	c := &Conn{writer: nats.NewInbox()[len(nats.InboxPrefix):], elected: newElections(), replicas: max(o.Replicas, 1), patience: o.Patience}
	c.tracer = telemetry.Tracer(o.Tracing, tracerName)
	c.intake.c = c
	if c.patience == 0 {
		c.patience = 30 * time.Second
	}
	if c.ackWait = o.Lease; c.ackWait == 0 {
		c.ackWait = 15 * time.Second
	}
	var where string
	var err error
	if c.nc, c.refused, where, err = o.connect(ctx); err != nil {
		return nil, err
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(objectPatience), jetstream.WithPublishAsyncTimeout(2*longTry)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	// A server without JetStream says so at once. One whose cluster has no leader yet drops the
	// request, so the try has a limit of its own: provision retries until the leader is there.
	err = c.refused.guard(ctx, func(ctx context.Context) error {
		try, cancel := context.WithTimeout(ctx, longTry)
		defer cancel()
		_, err := c.js.AccountInfo(try)
		return err
	})
	if ctx.Err() == nil && transient(err) && !errors.Is(err, nats.ErrNoResponders) {
		err = nil
	}
	if err == nil && !o.Bare {
		err = c.provision(ctx)
	}
	if err == nil {
		err = c.elected.follow(c.nc)
	}
	if err != nil {
		err = c.refused.lostError(err)
		c.nc.Close()
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
			return nil, fmt.Errorf("the NATS server at %s has no JetStream: start it with -js, or use exoswarm nats: %w", where, err)
		}
		return nil, fmt.Errorf("prepare the queue at %s: %w", where, err)
	}
	return c, nil
}

// A server that stands still is noticed after so many pings and one, 5 s: elections take 4 to 9. It was 8 s, and they were what submissions
// waited for when the leader stopped that they were connected to.
const (
	clientPing  = time.Second
	clientPings = 4
)

// connect dials as the options say; where is the server for people. It returns when ctx ends.
func (o Options) connect(ctx context.Context) (nc *nats.Conn, r *refusals, where string, err error) {
	ping, pings, timeout := clientPing, clientPings, 5*time.Second
	if o.GiveUp > 0 { // four to five tenths of it go by until a server that stands still is noticed
		ping, pings, timeout = o.GiveUp/10, 3, min(timeout, o.GiveUp/2)
	}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(ping),
		nats.MaxPingsOutstanding(pings),
		nats.Timeout(timeout),
	}
	where = Redact(o.URL)
	switch {
	case o.InProcess != nil:
		opts = append(opts, nats.InProcessServer(o.InProcess))
		where = "in this process"
	case o.URL == "" && o.Context != "":
		where = "of context " + o.Context
	}
	r = newRefusals(o.Logger)
	if o.GiveUp > 0 {
		r.patience, r.giveUp, r.where = o.GiveUp*3/8, o.GiveUp, where
	}
	type dialed struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan dialed, 1)
	go func() { // the client's own call knows no context
		nc, err := o.dial(o.URL, r, opts...)
		done <- dialed{nc, err}
	}()
	select {
	case d := <-done:
		if d.err != nil {
			return nil, nil, where, o.scrub(dialError(where, r.who, d.err))
		}
		return d.nc, r, where, nil
	case <-ctx.Done():
		go func() {
			if d := <-done; d.nc != nil {
				d.nc.Close()
			}
		}()
		return nil, nil, where, fmt.Errorf("connect to the NATS server at %s: %w", where, context.Cause(ctx))
	}
}

// Lost is closed when the connection has been without a server for as long as Options.GiveUp says; never without that.
func (c *Conn) Lost() <-chan struct{} { return c.refused.left }

// LostError says that the server was lost, if it was: err is what a call has failed with.
func (c *Conn) LostError(err error) error { return c.refused.lostError(err) }

// Refused is closed when the server has shut this connection's user out for good: its credentials expired or were revoked. Everything fails
// from then on.
func (c *Conn) Refused() <-chan struct{} { return c.refused.gone }

// NewID returns an id for a job or swarm that nobody else has.
func NewID() string { return nuid.Next() }

// Close ends the connection. Readers, leases and workers must have ended before. A second call does nothing.
func (c *Conn) Close() { c.nc.Close() }

// transient says whether the same call may succeed once the server, or the leader of its cluster, is back.
func transient(err error) bool {
	var code jetstream.ErrorCode
	var api *jetstream.APIError
	var former *nats.APIError // watches of buckets go by the client's former package
	switch {
	case errors.As(err, &api):
		code = api.ErrorCode
	case errors.As(err, &former):
		code = jetstream.ErrorCode(former.ErrorCode)
	}
	switch code {
	case errCodeNoPeers, errCodeNotAvailable, errCodeNotLeader, errCodeNoResources, errCodeAccountFull, errCodeStoreFull:
		return true
	}
	return errors.Is(err, errElected) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrAsyncPublishTimeout) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// What a cluster says while it has no leader or too few servers.
const (
	errCodeNoPeers      = 10005
	errCodeNotAvailable = 10008
	errCodeNotLeader    = 10009
	errCodeNoResources  = 10023
)

// How long one try of a call may take. What a try has sent to a leader that is gone nobody answers, so where a call may be repeated its tries
// are short at first: a sixth of what the call has taken so far. The servers elect another leader after 4 to 9 s, and with tries of 5 s the
// next one began up to 5 s behind that.
const (
	shortTry = time.Second
	longTry  = 5 * time.Second
)

// The longest pause between two tries, and between those of a call that may be repeated: they begin soon after the election too.
const (
	longPause  = time.Second
	shortPause = 250 * time.Millisecond
)

// retry calls fn until it succeeds, fails for good, ctx ends, or patience runs out. Each try has a time limit of its own.
func (c *Conn) retry(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	return c.retryIn(ctx, what, longPause, func(time.Duration) time.Duration { return longTry }, fn)
}

// repeat is retry for what may be done more than once although an answer was lost. size is how much a try sends, in bytes.
func (c *Conn) repeat(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	limit := func(since time.Duration) time.Duration { return tryFor(since, size) }
	return c.retryIn(ctx, what, shortPause, limit, func(ctx context.Context) error { return c.elected.try(ctx, fn) })
}

// tryFor is how long a try of repeat may take that begins so long after the call.
func tryFor(since time.Duration, size int) time.Duration {
	const slowest = 4 << 20 // bytes a second of a connection that is worth waiting for
	return min(max(since/6, shortTry), longTry) + time.Duration(size)*time.Second/slowest
}

func (c *Conn) retryIn(ctx context.Context, what string, rest time.Duration, limit func(since time.Duration) time.Duration, fn func(ctx context.Context) error) error {
	began := time.Now()
	deadline := began.Add(c.patience)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, rest) {
		err := c.refused.guard(ctx, func(ctx context.Context) error {
			try, cancel := context.WithTimeout(ctx, limit(time.Since(began)))
			defer cancel()
			return fn(try)
		})
		switch {
		case err == nil || !transient(err) && !errors.Is(err, jobs.ErrDenied):
			return err
		case errors.Is(err, jobs.ErrDenied):
			return fmt.Errorf("%s: %w", what, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if time.Now().Add(pause).After(deadline) {
			return fmt.Errorf("%s: no answer from NATS for %v: %w: %w", what, c.patience, err, jobs.ErrUnavailable)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}
