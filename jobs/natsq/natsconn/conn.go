// Package natsconn is a connection to a NATS server with JetStream: login, retries, denials and
// elections, and the messages and buckets that the rest of natsq is made of.
//
// Every call ends: with its context, or when no server has answered for Options.Patience. A call
// repeats its request as its verb tells: Retry has long tries, for reads and for requests that must
// not be sent often; RetryIdempotent has short tries, for requests that may be sent twice;
// RetryUnlessFull is RetryIdempotent without a wait for space on the disk of the server; and Once
// in a name means a single try. So the caller must choose a request whose repetition has no second
// effect: a read, a compare-and-set, or a message whose subject or id the server takes once.
package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// Options configure a connection.
type Options struct {
	// URL of the server, as in nats://127.0.0.1:4222; several with commas between. Ignored with
	// InProcess.
	URL string
	Login
	// InProcess connects to a server in this process.
	InProcess interface{ InProcessConn() (net.Conn, error) }
	// Name shows up in the server's list of connections.
	Name string
	// Replicas of every stream: 1 for a single server, 3 for a cluster. 0 means 1.
	Replicas int
	// Lease is how long a worker keeps a job without a renewal. A worker renews three times per
	// lease. 0 means 15 s. All connections to a queue must have the same value.
	Lease time.Duration
	// Siblings is how many further connections carry the logs of swarms (Spread), for a process that
	// serves several shards; 0 to 7.
	Siblings int
	// Bare leaves the server as it is: nothing is created. It is for Plan.
	Bare bool
	// Patience is how long a call keeps trying while the server cannot be reached; 0 means 30 s.
	Patience time.Duration
	// Logger gets a line when the connection is lost, when it is back, and for each message that
	// the server refuses in the background; nil for none.
	Logger *slog.Logger
	// NoSpace is called when calls begin to wait because the server stores nothing more. It is
	// called again only after a waiting call has succeeded. nil for none. It must not block.
	NoSpace func()
	// GiveUp ends a connection for good after so long without a server: Lost is closed, and every
	// call fails with jobs.ErrUnavailable. It is for commands, for which a person waits. 0 means
	// never, which is for agents.
	GiveUp time.Duration
	// Tracing makes spans for messages, which their headers join; nil for none, and then trace
	// headers are neither written nor read. The caller owns it, and flushes it after Close.
	Tracing trace.TracerProvider
}

// Conn is a connection to a NATS server with JetStream, and the rules by which its calls are
// repeated. Its methods may be called from several goroutines. Its fields must not be changed.
type Conn struct {
	NC       *nats.Conn
	refused  *violations
	elected  *elections
	JS       jetstream.JetStream // nil after Dial
	Writer   string              // a random name, which tells the appends of this connection from others
	Replicas int
	Patience time.Duration
	Lease    time.Duration
	Tracer   trace.Tracer // nil: nothing is traced
	requests *requests    // nil: not counted
	clock    clock
	space    space
	levels   levels
	siblings []*Conn
}

// dialed connects without JetStream. where names the server in texts for people.
func dialed(ctx context.Context, o Options) (c *Conn, where string, err error) {
	c = &Conn{
		Writer: nats.NewInbox()[len(nats.InboxPrefix):], elected: &elections{}, Replicas: max(o.Replicas, 1),
		requests: newRequests(),
		Patience: cmp.Or(o.Patience, 30*time.Second), Lease: cmp.Or(o.Lease, 15*time.Second),
		Tracer: tracing.Tracer(o.Tracing, tracerName), space: space{tell: o.NoSpace},
	}
	c.NC, c.refused, where, err = o.connect(ctx)
	return c, where, err
}

// Dial connects without JetStream, for a login that may not use streams: JS is nil, and methods
// that need it must not be called.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	c, _, err := dialed(ctx, o)
	return c, err
}

// Open connects to a server, checks that it has JetStream, and creates the missing streams and
// buckets of the protocol. It leaves existing ones as they are. The error tells which of these
// steps failed and what to do.
func Open(ctx context.Context, o Options) (*Conn, error) {
	c, where, err := dialed(ctx, o)
	if err != nil {
		return nil, err
	}
	if c.JS, err = newJetStream(c.NC); err != nil {
		c.NC.Close()
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	// A server without JetStream says so at once. A server whose cluster has no leader yet drops
	// the request, so each try has a limit: provision retries until there is a leader.
	err = c.refused.do(ctx, func(ctx context.Context) error {
		try, cancel := context.WithTimeout(ctx, LongTry)
		defer cancel()
		_, err := c.JS.AccountInfo(try)
		return err
	})
	if ctx.Err() == nil && IsTransient(err) && !errors.Is(err, nats.ErrNoResponders) {
		err = nil
	}
	if err == nil && !o.Bare {
		err = c.provision(ctx)
	}
	if err == nil {
		err = c.elected.follow(c.NC)
	}
	if err != nil {
		err = c.refused.lostError(err)
		c.NC.Close()
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
			errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders) {
			return nil, fmt.Errorf("the NATS server at %s has no JetStream: start it with -js, or use exoswarm "+
				"nats: %w", where, err)
		}
		return nil, fmt.Errorf("prepare the queue at %s: %w", where, err)
	}
	openSiblings(ctx, c, o)
	return c, nil
}

// A server that stands still is noticed after this number of pings and one more, 5 s: elections
// take 4 to 9. With 8 s, submissions to a stopped leader waited longer for this than for the
// election.
const (
	clientPing  = time.Second
	clientPings = 4
)

// connect dials as the options say; where is the server for people. It returns when ctx ends.
func (o Options) connect(ctx context.Context) (nc *nats.Conn, r *violations, where string, err error) {
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
	r = newViolations(o.Logger)
	if o.GiveUp > 0 {
		r.patience, r.giveUp, r.where = o.GiveUp*3/8, o.GiveUp, where
	}
	ended := func() error { return fmt.Errorf("connect to the NATS server at %s: %w", where, context.Cause(ctx)) }
	if ctx.Err() != nil {
		return nil, nil, where, ended()
	}
	type dialed struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan dialed, 1)
	go func(r *violations) { // the client's call takes no context, and may continue after r was returned as nil
		nc, err := o.dial(o.URL, r, opts...)
		done <- dialed{nc, err}
	}(r)
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
		return nil, nil, where, ended()
	}
}

// Lost is closed when the connection was without a server for Options.GiveUp. Without that option
// it is never closed.
func (c *Conn) Lost() <-chan struct{} { return c.refused.left }

// LostError returns the error of a call that failed with err: that the server was lost, if it was,
// or err.
func (c *Conn) LostError(err error) error { return c.refused.lostError(err) }

// Do calls fn with a context that ends when the server denies a message of this connection, and
// then calls fn again. The server does not tell to which call the message belongs. So a call fails
// with jobs.ErrDenied only when the same message is denied twice, or any message three times. fn
// must be safe to repeat.
func (c *Conn) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return c.refused.do(ctx, fn)
}

// Attempt is Do for a call that cannot be repeated as a whole. It returns the context of one try.
// end reports whether a denial has cut it, and which.
func (c *Conn) Attempt(ctx context.Context) (try context.Context, end func(err error) (by Violation, cut bool)) {
	return c.refused.attempt(ctx)
}

// Denied returns the error of a call that a violation has ended.
func (c *Conn) Denied(by Violation) error { return c.refused.denied(by) }

// Explain adds the reason to an error, if the server has closed the connection.
func (c *Conn) Explain(err error) error { return c.refused.explain(err) }

// Refused is closed when the server refuses the user of this connection for good, because the
// credentials expired or were revoked. All calls fail from then on.
func (c *Conn) Refused() <-chan struct{} { return c.refused.gone }

// User returns the name of the user of the credentials that this connection logged in with; empty
// for a login without a name. It is for people: the server knows who may do what.
func (c *Conn) User() string { return c.refused.who.name }

// NewID returns a random id for a job or a swarm, which is unique.
func NewID() string { return nuid.Next() }

// Close ends the connection and its siblings. Readers, leases and workers must have ended before. A
// second call does nothing.
func (c *Conn) Close() {
	for _, s := range c.siblings {
		s.NC.Close()
	}
	c.NC.Close()
}

// IsTransient reports whether the same call may succeed when the server, or the leader of a stream,
// is back.
func IsTransient(err error) bool {
	var code jetstream.ErrorCode
	var api *jetstream.APIError
	var former *nats.APIError // watches of buckets use the client's former package
	switch {
	case errors.As(err, &api):
		code = api.ErrorCode
	case errors.As(err, &former):
		code = jetstream.ErrorCode(former.ErrorCode)
	}
	switch code {
	case ErrCodeNoPeers, errCodeNotAvailable, errCodeNotLeader, errCodeNoResources, errCodeAccountFull,
		errCodeStoreFull, ErrCodeTooFast, errCodeInProcess:
		return true
	}
	return errors.Is(err, errElected) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrAsyncPublishTimeout) ||
		errors.Is(err, nats.ErrReconnectBufExceeded)
}

// Errors of a cluster while it has no leader or too few servers.
const (
	ErrCodeNoPeers      = 10005
	errCodeNotAvailable = 10008
	errCodeNotLeader    = 10009
	errCodeNoResources  = 10023
)

// errCodeInProcess is the error of a try with the message id of an earlier try that the servers of
// a cluster have not settled yet. A later try is told what became of the earlier one.
const errCodeInProcess = 10158

// ErrCodeTooFast is the error of a message that comes while more than 128 MiB wait for the disk of
// its stream. The server has not stored it.
const ErrCodeTooFast = 10167

// The time limits of one try. A leader that is gone never answers, so the tries of a call that may
// be repeated are short at first: a sixth of the time of the call so far. The servers elect another
// leader after 4 to 9 s; with tries of 5 s the next one began up to 5 s after that.
const (
	ShortTry = time.Second
	LongTry  = 5 * time.Second
)

// apiTimeout is the limit of a request of the client without another limit.
const apiTimeout = 10 * time.Second

// The longest pause between two tries. It is shorter for a call that may be repeated, so that a try
// begins soon after an election.
const (
	longPause  = time.Second
	shortPause = 250 * time.Millisecond
)

// Retry calls fn until it succeeds, fails for good, ctx ends, or no server has answered for
// Patience. Each try has a time limit. The last error is jobs.ErrUnavailable if the patience has
// ended.
func (c *Conn) Retry(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	return c.RetrySending(ctx, what, 0, fn)
}

// RetrySending is Retry for tries that send up to size bytes, which takes longer on a slow
// connection.
func (c *Conn) RetrySending(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	limit := LongTry + sending(size)
	return c.retryIn(ctx, what, longPause, func(time.Duration) time.Duration { return limit }, fn)
}

// RetryIdempotent is Retry for a request that may be sent again although its answer was lost.
// Its tries are shorter, and end with an election. size is the number of bytes that a try sends.
func (c *Conn) RetryIdempotent(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	limit := func(since time.Duration) time.Duration { return tryLimit(since, size) }
	return c.retryIn(ctx, what, shortPause, limit, func(ctx context.Context) error { return c.elected.try(ctx, fn) })
}

// tryLimit returns the time limit of a try that begins since after the start of the call, and sends
// size bytes.
func tryLimit(since time.Duration, size int) time.Duration {
	return min(max(since/6, ShortTry), LongTry) + sending(size)
}

// sending returns how long the slowest supported connection takes to send size bytes.
func sending(size int) time.Duration {
	const slowest = 4 << 20 // bytes per second
	return time.Duration(size) * time.Second / slowest
}

// retryIn is Retry with a longest pause, and a limit of a try by the time since the call.
func (c *Conn) retryIn(ctx context.Context, what string, rest time.Duration,
	limit func(since time.Duration) time.Duration, fn func(ctx context.Context) error,
) error {
	began := time.Now()
	deadline := began.Add(c.Patience)
	waits := false // for space, and somebody was told
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, rest) {
		err := c.refused.do(ctx, func(ctx context.Context) error {
			try, cancel := context.WithTimeout(ctx, limit(time.Since(began)))
			defer cancel()
			return fn(try)
		})
		switch {
		case err == nil:
			c.space.answered(&waits)
			return nil
		case !IsTransient(err) && !errors.Is(err, jobs.ErrDenied):
			return err
		case errors.Is(err, jobs.ErrDenied):
			return fmt.Errorf("%s: %w", what, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		full := IsNoSpace(err)
		if time.Now().Add(pause).After(deadline) {
			if full {
				// IsNoSpace holds for it: workers try again for longer than other callers.
				return fmt.Errorf("%w: it had none for %v: %w: %w", NoSpaceError(what), c.Patience, jobs.ErrUnavailable,
					err)
			}
			return fmt.Errorf("%s: no answer from NATS for %v: %w: %w", what, c.Patience, err, jobs.ErrUnavailable)
		}
		if full && time.Since(began) > spaceNotice {
			c.space.wait(&waits)
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
