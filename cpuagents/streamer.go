package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/jobs"
)

// Queue is what a stream needs of the queue beside its job.
type Queue interface {
	PutSwarm(ctx context.Context, s jobs.Swarm) error
	DeleteSwarm(ctx context.Context, id string) error
	Log(swarm string, shard int, d jobs.Direction) jobs.Log
	// Subscribe reads a stream that is not the queue's own; Unsubscribe removes a consumer of one.
	Subscribe(ctx context.Context, s jobs.Subscription) (jobs.Subscriber, error)
	Unsubscribe(ctx context.Context, stream, consumer string) error
	// Publish stores a message in a stream that is not the queue's own; Published returns the id of the last one of a subject, or nothing.
	Publish(ctx context.Context, p jobs.Publication) error
	Published(ctx context.Context, stream, subject string) (id string, err error)
}

// Streamer does stream jobs.
type Streamer struct {
	Queue  Queue
	Files  *Files
	Logger *slog.Logger
	// Egress is what jobs may reach over the network; nil for nothing. Secrets are those that they may refer to; nil for those of the
	// environment.
	Egress  *egress.Guard
	Secrets *secret.Store
	// Stall is how long it waits for a decision that does not come; 0 means 60 s.
	Stall time.Duration
}

const (
	defaultBatchRows = 4096
	// window is how many batches may be under way: enough that agents and files never wait for each other, few enough that
	// a decision comes soon after its row was read.
	window       = 4
	defaultStall = 60 * time.Second
)

// Handle is the jobs.Handler for KindStream.
func (s *Streamer) Handle(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	var spec StreamSpec
	if err := json.Unmarshal(job.Spec, &spec); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: %v", job.ID, err)
	}
	if spec.BatchRows == 0 {
		spec.BatchRows = defaultBatchRows
	}
	if spec.BatchRows < 1 || spec.BatchRows > defaultBatchRows || len(spec.Candidates) == 0 || len(spec.Columns.Features) == 0 {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: batch_rows must be 1 to %d, candidates and columns.features must not be empty", job.ID, defaultBatchRows)
	}
	if spec.OutputFormat == "" {
		spec.OutputFormat, _ = FormatOf(spec.Output, "ndjson")
	}
	if err := spec.OutputFormat.Check(); err != nil {
		return nil, fmt.Errorf("job %s: output: %w", job.ID, err)
	}
	held := s.Files.memory.hold(ctx, "manifest "+spec.Manifest)
	defer held.release()
	series, err := s.manifest(ctx, spec.Manifest, held)
	if err != nil {
		return nil, err
	}
	var own []jobs.Log // beside in and out
	var remove []func(context.Context) error
	for i, src := range series { // every file must be readable before the first row goes out
		if s.remote(src.URI) {
			f, err := s.fetcher(job.ID, i, src, spec.Columns)
			if err != nil {
				return nil, err
			}
			_ = f.close()
			if subject, is := f.(*subjectFetcher); is {
				remove = append(remove, subject.remove)
			}
			if own = append(own, s.Queue.Log(job.ID, 1+i, jobs.In)); len(own) > maxRemote {
				return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: it has more than %d sources that are not files: make several jobs of it", job.ID, maxRemote)
			}
			continue
		}
		if err := s.check(ctx, src, spec.Columns); err != nil {
			return nil, err
		}
	}
	taps, err := s.taps(job.ID, spec, series)
	if err != nil {
		return nil, err
	}
	for i, t := range taps {
		defer t.close()
		own = append(own, s.tapLog(job.ID, i))
	}
	st := &stream{
		Streamer: s, id: job.ID, spec: spec, series: series, progress: progress,
		in: s.Queue.Log(job.ID, 0, jobs.In), out: s.Queue.Log(job.ID, 0, jobs.Out),
		summary: make([]SeriesSummary, len(series)), answered: make(chan struct{}, 1), taps: taps,
	}
	for i, src := range series {
		st.summary[i].Name = src.Name
	}
	result, err := st.run(ctx)
	if errors.Is(err, jobs.ErrNotFound) && st.gone(ctx) {
		err = fmt.Errorf("%w: %w", jobs.ErrFenced, err)
	}
	// A job that goes on elsewhere keeps its logs; one that is over leaves nothing behind. A server that was killed hands a job out again that
	// somebody has, so two attempts may run at a time: one of them loses the log, and must leave the other everything.
	goesOn := errors.Is(context.Cause(ctx), jobs.ErrDrain) || errors.Is(err, jobs.ErrFenced) || jobs.Retryable(err) && !job.LastAttempt
	if err == nil || !goesOn {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		steps := []func(context.Context) error{
			func(ctx context.Context) error { return s.Queue.DeleteSwarm(ctx, job.ID) }, st.in.Delete, st.out.Delete,
		}
		for _, l := range own {
			steps = append(steps, l.Delete)
		}
		steps = append(steps, remove...)
		for _, step := range steps {
			if cerr := step(clean); cerr != nil {
				s.Logger.Warn("cleaning up after a stream", "job", job.ID, "error", cerr)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// taps makes what takes the decisions of a job beside its output: its webhook and its sinks.
func (s *Streamer) taps(job string, spec StreamSpec, series []SeriesSource) (taps []tap, err error) {
	if len(spec.Sinks) > maxSinks {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: it has more than %d sinks: make several jobs of it", job, maxSinks)
	}
	defer func() {
		if err != nil {
			for _, t := range taps {
				t.close()
			}
		}
	}()
	if spec.Webhook != nil {
		hook, err := newWebhook(job, *spec.Webhook, series, spec.Candidates, s.Egress, s.Secrets)
		if err != nil {
			return nil, err
		}
		taps = append(taps, hook)
	}
	for i, sink := range spec.Sinks {
		t, err := s.newTap(job, i, sink, series, spec.Candidates, spec.Drops)
		if err != nil {
			return taps, err
		}
		taps = append(taps, t)
	}
	return taps, nil
}

// tapLog is where tap number i of a job keeps its position.
func (s *Streamer) tapLog(job string, i int) jobs.Log { return s.Queue.Log(job, tapShard+i, jobs.Out) }
