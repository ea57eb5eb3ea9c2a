package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Queue is the part of the queue that a stream job needs besides the job itself. Its methods may be
// called concurrently.
type Queue interface {
	// CreateSwarm announces a swarm, Swarm reads its record, and RemoveSwarm removes the swarm with
	// its logs, but no other swarm of the same id.
	CreateSwarm(ctx context.Context, s swarms.Swarm) error
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
	RemoveSwarm(ctx context.Context, s swarms.Swarm) error
	// Log returns a log of a swarm. It makes no request.
	Log(swarm string, shard int, d swarms.Direction) swarms.Log
	source.Queue
	sink.Queue
}

// Options are the resources of a Streamer.
type Options struct {
	// Queue, Files and Logger are required. The caller closes them after the last job.
	Queue  Queue
	Files  *files.Files
	Logger *slog.Logger
	// Egress is the guard of connections; nil for no network.
	Egress *access.Guard
	// Secrets are the secrets that jobs may name; nil for the secrets of the environment.
	Secrets *access.Store
	// Streams are the JetStream streams that jobs of tenants may read and publish to. Jobs without
	// a tenant may use any stream.
	Streams Streams
	// Metrics counts rows and decisions; nil for none.
	Metrics *Metrics
	// Stall is the longest wait for a decision that is due; 0 means 60 s.
	Stall time.Duration
}

func (o Options) validate() error {
	var errs []error
	missing := func(name string, is bool) {
		if is {
			errs = append(errs, fmt.Errorf("option %s is missing", name))
		}
	}
	missing("Queue", o.Queue == nil)
	missing("Files", o.Files == nil)
	missing("Logger", o.Logger == nil)
	if o.Stall < 0 {
		errs = append(errs, fmt.Errorf("option Stall is %v: use a positive time", o.Stall))
	}
	return errors.Join(errs...)
}

// Streamer executes stream jobs. Handle may be called concurrently. The jobs share the files, the
// memory for inputs and the connection of the agent, and nothing else.
type Streamer struct {
	Options
	owner jobs.Owner // of the job, in a view from of
}

// New returns a Streamer with the resources of an agent.
func New(o Options) (*Streamer, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("stream jobs: %w", err)
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	return &Streamer{Options: o}, nil
}

const (
	// maxRemote bounds the remote sources of a job: each keeps a log on the queue.
	maxRemote = 64
	// maxSinks bounds the sinks of a job, its output and its webhook not counted.
	maxSinks = 8
	// sinkShard is the number of the log of the webhook among the logs of a job, after the journals
	// of its sources. The logs of the sinks follow.
	sinkShard = maxRemote + 1

	defaultStall = 60 * time.Second
)

// Handle is the jobs.Handler for KindStream. It returns a *StreamResult. progress is called with a
// StreamProgress from the goroutines of the job, one call at a time. An error that is
// jobs.ErrFenced means that another attempt of the job continues, and jobs.ErrUnfit that another
// agent must take the job.
func (s *Streamer) Handle(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	if err := s.Files.Ready(); err != nil {
		return nil, err
	}
	s = s.of(job)
	st := newStream(s, job.ID, progress)
	ended := s.Metrics.begin()
	result, err := st.attempt(ctx, job)
	st.counts.meter()
	ended()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause // a call that ctx ended says only that it was cancelled
	}
	s.Files.NoteScratch(err)
	gone := (errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrFenced)) && st.gone(ctx)
	if gone && !errors.Is(err, jobs.ErrFenced) {
		err = fmt.Errorf("%w: %w", jobs.ErrFenced, err)
	}
	// A job that continues elsewhere keeps its swarm, and a job that has ended leaves nothing.
	// After a server was killed it may give out a job that is still running, so two attempts may
	// run at a time: the attempt that loses the log must leave everything to the other attempt. If
	// the other has removed the swarm, nobody else removes what this attempt has made since.
	goesOn := errors.Is(context.Cause(ctx), jobs.ErrDrain) || errors.Is(err, jobs.ErrFenced) ||
		errors.Is(err, jobs.ErrUnfit) ||
		jobs.Retryable(err) && !job.LastAttempt
	if err == nil || !goesOn || gone {
		st.clean(ctx, gone)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (s *Streamer) sourceResources() source.Resources {
	return source.Resources{
		Queue:       s.Queue,
		Files:       s.Files,
		Egress:      s.Egress,
		Secrets:     s.Secrets,
		Owner:       s.owner,
		Logger:      s.Logger,
		AllowStream: s.allowStream,
	}
}

func (s *Streamer) sinkResources() sink.Resources {
	return sink.Resources{
		Queue:       s.Queue,
		Files:       s.Files,
		Egress:      s.Egress,
		Secrets:     s.Secrets,
		AllowStream: s.allowStream,
		Logger:      s.Logger,
		Dropped:     s.Metrics.sinkDropped,
	}
}

func (s *Streamer) allowStream(stream string) error { return s.Streams.check(s.owner, stream) }
