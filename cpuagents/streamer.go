package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
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
	// Secrets are the secrets to which jobs may refer; nil for those of the environment.
	Secrets *access.Store
	// Streams are the JetStream streams that jobs of tenants may read and publish to. Jobs without
	// a tenant may use any stream.
	Streams Streams
	// Metrics counts rows and decisions; nil for none.
	Metrics *Metrics
	// Stall is the longest wait for a decision that is due; 0 means 60 s.
	Stall time.Duration
}

// validate returns an error that joins all faults of the options.
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
	owner jobs.Owner // of the job, in the view that of returns
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
	// maxSinks bounds the sinks of a job beside its output and its webhook.
	maxSinks = 8
	// sinkShard is the number of the log of the webhook among the logs of a job, after the journals
	// of its sources. The logs of the sinks follow.
	sinkShard = maxRemote + 1

	defaultStall = 60 * time.Second
)

// Handle is the jobs.Handler for KindStream. It returns a *StreamResult. progress is called with a
// StreamProgress from the goroutines of the job, one call at a time. An error that is
// jobs.ErrFenced means that another attempt of the job goes on, and jobs.ErrUnfit that another
// agent must take the job.
func (s *Streamer) Handle(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	if err := s.Files.Ready(); err != nil {
		return nil, err
	}
	s = s.of(job)
	st := &stream{
		Streamer: s, id: job.ID, progress: progress, answered: make(chan struct{}, 1), ahead: make(chan struct{}, 1),
	}
	ended := s.Metrics.begin()
	result, err := st.attempt(ctx, job)
	st.count()
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
	// run at a time: one of them loses the log, and must leave everything to the other. If the
	// other has removed the swarm, nobody else removes what this attempt has made since.
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

// attempt executes the job, without the clean-up. Every mistake that can be found without a row is
// found before the swarm is announced, so that a wrong specification takes no place on a GPU.
func (s *stream) attempt(ctx context.Context, job jobs.Job) (*StreamResult, error) {
	spec := &s.spec
	if err := json.Unmarshal(job.Spec, spec); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: %v", job.ID, err)
	}
	if spec.BatchRows == 0 {
		spec.BatchRows = batch.MaxRows
	}
	if spec.BatchRows < 1 || spec.BatchRows > batch.MaxRows || len(spec.Candidates) == 0 ||
		len(spec.Columns.Features) == 0 {
		return nil, jobs.Errorf(
			jobs.CodeInvalid,
			"job %s: stream spec: batch_rows must be 1 to %d, candidates and columns.features must not be empty",
			job.ID, batch.MaxRows,
		)
	}
	if _, err := spec.Columns.CSV.Validate(); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: columns.%v", job.ID, err)
	}
	if err := spec.Columns.CheckKey(swarms.MaxGroups); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: columns: %v", job.ID, err)
	}
	if spec.Evict != nil {
		if err := spec.Evict.check(spec.Columns); err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: evict: %v", job.ID, err)
		}
	}
	if spec.OutputFormat == "" {
		spec.OutputFormat, _ = rows.FormatOf(spec.Output, "ndjson")
	}
	if err := spec.OutputFormat.Check(); err != nil {
		return nil, fmt.Errorf("job %s: output: %w", job.ID, err)
	}
	held := s.Files.Hold(ctx, "manifest "+spec.Manifest)
	defer held.Release()
	series, err := s.manifest(ctx, spec.Manifest, held)
	if err != nil {
		return nil, err
	}
	s.series = series
	if most := spec.Columns.Entities(); most > 0 {
		if spec.Evict != nil {
			s.evict = newRunEviction(*spec.Evict, most)
			most = swarms.MaxGroups // the memory of the job is the bound
		}
		s.entities = feed.NewEntities(most, held)
		s.names = s.entities
	} else {
		s.summary = make([]SeriesSummary, len(series))
	}
	remotes := 0
	for i, src := range series { // every file must be readable before the first row goes out
		if s.entities == nil {
			s.summary[i].Name = src.Name
		}
		remove, err := s.sourceResources().Check(ctx, job.ID, i, src, spec.Columns)
		if err != nil {
			return nil, err
		}
		if remove != nil {
			s.remove = append(s.remove, remove)
		}
		if source.IsRemote(src.URI) {
			remotes++
		}
		if remotes > maxRemote {
			return nil, jobs.Errorf(
				jobs.CodeInvalid, "job %s: it has more than %d sources that are not files: make several jobs of it",
				job.ID, maxRemote,
			)
		}
	}
	if s.sinks, err = s.openSinks(job.ID, *spec); err != nil {
		return nil, err
	}
	for _, t := range s.sinks {
		defer t.Close()
	}
	if s.record, err = s.claim(ctx); err != nil {
		return nil, err
	}
	s.openShards()
	if s.evict != nil {
		if s.evict.states, err = statelog.OpenStates(ctx, s.log(commitlog.ClusterLogs.States, swarms.In)); err != nil {
			return nil, err
		}
	}
	return s.run(ctx)
}

// claim returns the record of the job's swarm, which an earlier attempt may have made. It refuses a
// swarm of another owner.
func (s *stream) claim(ctx context.Context) (swarms.Swarm, error) {
	shards, err := s.shardCount("job "+s.id, s.groups())
	if err != nil {
		return swarms.Swarm{}, err
	}
	for { // mostly there is no record, so it is stored first: the queue is slow to say for sure that there is none
		record := swarms.Swarm{
			Version: jobs.Version, ID: s.id, Nonce: swarms.NewNonce(), Owner: s.id, Name: s.spec.Name,
			Spec:   s.spec.Spec,
			Groups: s.groups(), Shards: shards, Created: time.Now().UTC(),
		}
		if err := s.Queue.CreateSwarm(ctx, record); !errors.Is(err, jobs.ErrExists) {
			return record, err
		}
		record, err := s.Queue.Swarm(ctx, s.id)
		switch {
		case errors.Is(err, jobs.ErrNotFound): // it was removed meanwhile
		case err != nil:
			return swarms.Swarm{}, err
		case record.OwnerJob() != s.id:
			return swarms.Swarm{}, jobs.Errorf(
				jobs.CodeInvalid,
				"job %s: there is a swarm %s that is not its own, and is left as it is: submit the job with another id",
				s.id, s.id,
			)
		case !record.Ending:
			return record, nil
		}
	}
}

// groups returns the number of groups of the swarm.
func (s *stream) groups() int {
	if s.entities != nil {
		return s.spec.Columns.Entities()
	}
	return len(s.series)
}

// layout returns the columns of the decisions of the job.
func (s *stream) layout() encode.Layout {
	l := s.spec.layout(s.series)
	if s.names != nil {
		l.Entities = s.names
	}
	return l
}

// gone reports whether the job's swarm was removed: by another attempt that has ended the job, or
// by a user.
func (s *stream) gone(ctx context.Context) bool {
	if s.record.ID == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	now, err := s.Queue.Swarm(ctx, s.id)
	return errors.Is(err, jobs.ErrNotFound) || err == nil && (now.Ending || !now.Same(s.record))
}

// cleanPatience bounds the wait for the server at the end of an attempt. What is not removed then
// is an orphan, which is swept later.
const cleanPatience = 30 * time.Second

// clean removes the swarm of a job that has ended, and what the attempt keeps elsewhere. If the
// swarm was removed already, clean removes only what is left of it, since another attempt may have
// made the next one. It runs also after the end of ctx, for at most cleanPatience, and logs its
// failures.
func (s *stream) clean(ctx context.Context, gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	steps := []func(context.Context) error{func(ctx context.Context) error {
		if s.record.ID != "" {
			return s.Queue.RemoveSwarm(ctx, s.record)
		}
		record, err := s.Queue.Swarm(ctx, s.id) // that of an earlier attempt
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return nil
		case err != nil:
			return err
		case record.OwnerJob() == s.id:
			return s.Queue.RemoveSwarm(ctx, record)
		}
		return nil
	}}
	if !gone {
		steps = append(steps, s.remove...)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.Logger.Warn("cleaning up after a stream", "job", s.id, "error", err)
		}
	}
}

// openSinks makes the sinks of a job: its webhook, those of its specification, and that of its
// submitter. Their places are the same in every attempt. The caller closes them; after an error
// they are closed.
func (s *stream) openSinks(job string, spec StreamSpec) (sinks []sink.Sink, err error) {
	if len(spec.Sinks) > maxSinks {
		return nil, jobs.Errorf(
			jobs.CodeInvalid, "job %s: it has more than %d sinks: make several jobs of it", job, maxSinks,
		)
	}
	defer func() {
		if err != nil {
			for _, t := range sinks {
				t.Close()
			}
		}
	}()
	if spec.Webhook != nil {
		hook, err := sink.NewWebhook(job, *spec.Webhook, s.layout(), s.Egress, s.Secrets)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, hook)
	}
	resources := s.sinkResources()
	resources.Name, resources.Resumes = spec.Name, s.resumes
	for i, one := range spec.Sinks {
		t, err := resources.New(job, i, one, s.layout())
		if err != nil {
			return sinks, err
		}
		sinks = append(sinks, t)
	}
	if spec.Live { // the last, so that the others keep the places of their positions
		sinks = append(sinks, sink.NewLive(job, s.layout(), s.Queue, s.Logger))
	}
	return sinks, nil
}

// sourceResources returns what the sources of the job may use.
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

// sinkResources returns what the sinks of the job may use.
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

// allowStream returns an error if the job may not use a JetStream stream.
func (s *Streamer) allowStream(stream string) error { return s.Streams.check(s.owner, stream) }

// log returns a log of the job's swarm. The first ones are those of its shards. The logs from
// journalShard on are the journals of the sources, and those from sinkShard on have the positions of
// the sinks.
func (s *stream) log(shard int, d swarms.Direction) swarms.Log {
	return s.Queue.Log(s.record.Key(), shard, d)
}
