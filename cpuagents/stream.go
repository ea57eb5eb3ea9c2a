// Package cpuagents does the I/O of swarms: it reads sources, feeds their rows through a swarm's log, and writes what the
// agents decide. It holds no GPU code; the queue is all it shares with a GPU agent.
package cpuagents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/jobs"
)

// KindStream is the kind of job that feeds files through a swarm: every row of every series becomes an observation of one
// group, and every decision a line of the output.
const KindStream = "stream"

// StreamSpec is the spec of a stream job.
type StreamSpec struct {
	// Name and Spec are those of the swarm; its id is that of the job.
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
	// Candidates name the decisions, the most unusual last.
	Candidates []string   `json:"candidates"`
	Columns    ColumnSpec `json:"columns"`
	// Manifest is the URI of a JSON list of SeriesSource in the order of the output. The group of a series is its place.
	Manifest string `json:"manifest"`
	// Sinks take decisions as they are made, up to 8. With one, Output may be empty.
	Sinks []SinkSpec `json:"sinks,omitempty"`
	// Output, Rejects and Summary are the URIs of what the job writes: decisions, rejected rows as NDJSON, and a JSON list of
	// SeriesSummary.
	Output  string `json:"output"`
	Rejects string `json:"rejects"`
	Summary string `json:"summary"`
	// OutputFormat of the decisions. Empty is what the extension of Output stands for, and NDJSON when that stands for nothing.
	OutputFormat Format `json:"output_format,omitempty"`
	// Webhook is told of decisions as they are made; nil for none.
	Webhook *WebhookSpec `json:"webhook,omitempty"`
	// BatchRows is the most rows of a message, 1 to 4096; 0 means 4096. It changes no output.
	BatchRows int `json:"batch_rows,omitempty"`
	// Strict fails the job at the first row that is not valid.
	Strict bool `json:"strict,omitempty"`
}

// SeriesSource is one series and where its rows come from.
type SeriesSource struct {
	Name string `json:"name"`
	URI  string `json:"uri"`
	// Format of its rows. Empty is what the extension of URI stands for, and CSV when that stands for nothing.
	Format Format `json:"format,omitempty"`
	// HTTP is for a URI that begins with http:// or https://.
	HTTP *HTTPSpec `json:"http,omitempty"`
	// SQL is for a URI that begins with sqlite: or postgres://. It must be there then.
	SQL *SQLSpec `json:"sql,omitempty"`
	// Watch is for a URI that begins with watch:.
	Watch *WatchSpec `json:"watch,omitempty"`
	// Object is for a URI that begins with s3://.
	Object *ObjectSpec `json:"object,omitempty"`
	// NATS is for a URI that begins with nats:. It must be there then.
	NATS *SubjectSpec `json:"nats,omitempty"`
	// Push is for a URI that begins with push:. It must be there then.
	Push *PushSpec `json:"push,omitempty"`
}

// SeriesSummary is what became of one series.
type SeriesSummary struct {
	Name         string `json:"name"`
	Observations uint64 `json:"observations"` // valid rows
	Rejected     uint64 `json:"rejected"`
	Decisions    uint64 `json:"decisions"`
	Anomalies    uint64 `json:"anomalies"` // decisions for the last candidate
}

// StreamResult is the output of a stream job.
type StreamResult struct {
	Observations uint64  `json:"observations"`
	Rejected     uint64  `json:"rejected"`
	Decisions    uint64  `json:"decisions"`
	Anomalies    uint64  `json:"anomalies"`
	Seconds      float64 `json:"seconds"`
	// LatencyP50 and LatencyP99 are milliseconds from reading a row to having its decision.
	LatencyP50  float64 `json:"latency_p50_ms"`
	LatencyP99  float64 `json:"latency_p99_ms"`
	Interrupted bool    `json:"interrupted,omitempty"`
}

// StreamProgress is what a stream job reports while it runs.
type StreamProgress struct {
	Series       int    `json:"series"`
	Observations uint64 `json:"observations"`
	Rejected     uint64 `json:"rejected"`
	Decisions    uint64 `json:"decisions"`
	Done         bool   `json:"done,omitempty"` // everything is decided, the output is being written
}

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
	series, err := s.manifest(ctx, spec.Manifest)
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
		r, err := s.open(ctx, src, spec.Columns)
		if err != nil {
			return nil, err
		}
		_ = r.close()
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
		t, err := s.newTap(job, i, sink, series, spec.Candidates)
		if err != nil {
			return taps, err
		}
		taps = append(taps, t)
	}
	return taps, nil
}

// tapLog is where tap number i of a job keeps its position.
func (s *Streamer) tapLog(job string, i int) jobs.Log { return s.Queue.Log(job, tapShard+i, jobs.Out) }

func (s *Streamer) manifest(ctx context.Context, uri string) ([]SeriesSource, error) {
	r, err := s.Files.open(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var series []SeriesSource
	if err := json.NewDecoder(r).Decode(&series); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "manifest %s: %v", uri, err)
	}
	if len(series) == 0 {
		return nil, jobs.Errorf(jobs.CodeInvalid, "manifest %s: it names no series", uri)
	}
	return series, nil
}

// remote says whether a source is read document by document, and what was read kept on the queue.
func (s *Streamer) remote(uri string) bool {
	for _, p := range []string{"http://", "https://", "sqlite:", "postgres://", "watch:", "s3://", "nats:", "push:"} {
		if strings.HasPrefix(uri, p) {
			return true
		}
	}
	return false
}

// fetcher makes the fetcher of a remote source, number i of a job.
func (s *Streamer) fetcher(job string, i int, src SeriesSource, columns ColumnSpec) (fetcher, error) {
	if err := cmp.Or(src.Format, "csv").Check(); err != nil {
		return nil, fmt.Errorf("series %s: %w", src.Name, err)
	}
	switch {
	case strings.HasPrefix(src.URI, "watch:"):
		return newWatchFetcher(src.URI, src.Format, src.Watch, s.Files)
	case strings.HasPrefix(src.URI, "nats:"):
		return newSubjectFetcher(src.URI, src.Format, src.NATS, fmt.Sprintf("exoswarm-%s-%d", job, i), s.Queue)
	case strings.HasPrefix(src.URI, "push:"):
		return newPushFetcher(src.URI, src.Format, src.Push, s.Queue)
	case strings.HasPrefix(src.URI, "s3://"):
		return newObjectFetcher(src.URI, src.Format, src.Object, s.Egress, s.Secrets)
	case strings.HasPrefix(src.URI, "http"):
		return newHTTPFetcher(src.URI, src.Format, src.HTTP, s.Egress, s.Secrets)
	}
	return newSQLFetcher(src.URI, src.SQL, columns, s.Files, s.Egress, s.Secrets)
}

// openRemote opens a remote source for the reader of series number i. ctx ends its waiting.
func (s *stream) openRemote(ctx context.Context, i int) (rowReader, error) {
	f, err := s.fetcher(s.id, i, s.series[i], s.spec.Columns)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(ctx, s.Queue.Log(s.id, 1+i, jobs.In))
	if err != nil {
		_ = f.close()
		return nil, err
	}
	return &remoteReader{ctx: ctx, name: s.series[i].Name, spec: s.spec.Columns, files: s.Files, journal: j, src: f}, nil
}

func (s *Streamer) open(ctx context.Context, src SeriesSource, spec ColumnSpec) (rowReader, error) {
	format := src.Format
	if format == "" {
		format, _ = FormatOf(src.URI, "csv")
	}
	if err := format.Check(); err != nil {
		return nil, fmt.Errorf("series %s: %w", src.Name, err)
	}
	f, err := s.Files.open(ctx, src.URI)
	if err != nil {
		return nil, err
	}
	return newReader(src.Name, f, format, spec, s.Files.unpacked)
}

// stream is one stream job under way. Two goroutines share it: feed reads the files, drain the decisions.
type stream struct {
	*Streamer
	id       string
	spec     StreamSpec
	series   []SeriesSource
	in, out  jobs.Log
	progress func(any)

	mu       sync.Mutex
	summary  []SeriesSummary // feed and drain write different fields
	state    StreamProgress
	sent     uint64 // batches appended
	decided  uint64 // batches answered
	reported time.Time

	answered chan struct{} // drain has moved decided on
	taps     []tap
}

// gone says whether the job's log is not there any more: another attempt has ended the job.
func (s *stream) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, err := s.in.Last(ctx)
	return errors.Is(err, jobs.ErrNotFound)
}

func (s *stream) run(ctx context.Context) (*StreamResult, error) {
	started := time.Now()
	// Both sides end together: the first failure stops the other. A request to finish early stops only the reading.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopped := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, jobs.ErrFinish) {
			cancel(cause)
		}
	})
	defer stopped()
	var out *output
	var to io.Writer
	if s.spec.Output != "" || len(s.spec.Sinks) == 0 {
		var err error
		if out, err = s.Files.create(work, s.spec.Output); err != nil {
			return nil, err
		}
		defer out.abort()
		to = out
	}
	rejects, err := s.Files.create(work, s.spec.Rejects)
	if err != nil {
		return nil, err
	}
	defer rejects.abort()
	for _, l := range []jobs.Log{s.in, s.out} {
		if err := l.Create(work); err != nil {
			return nil, err
		}
	}
	record := jobs.Swarm{Version: jobs.Version, ID: s.id, Name: s.spec.Name, Spec: s.spec.Spec, Groups: len(s.series), Created: started.UTC()}
	if err := s.Queue.PutSwarm(work, record); err != nil {
		return nil, err
	}
	s.state.Series = len(s.series)

	var fed sync.WaitGroup
	fed.Add(1)
	go func() {
		defer fed.Done()
		if err := s.feed(ctx, work, rejects); err != nil {
			cancel(err)
		}
	}()
	for i, t := range s.taps {
		if err := t.open(work, s.tapLog(s.id, i)); err != nil {
			cancel(err)
			fed.Wait()
			return nil, context.Cause(work) // a drain may be what has failed it
		}
	}
	sink, err := newSink(s, to)
	if err != nil {
		cancel(err)
		fed.Wait()
		return nil, context.Cause(work)
	}
	defer sink.close()
	end, err := s.drain(work, sink)
	for _, t := range s.taps {
		if err == nil {
			err = t.end(work)
		}
	}
	if err != nil {
		cancel(err)
	}
	fed.Wait()
	if cause := context.Cause(work); cause != nil {
		return nil, cause
	}
	result := &StreamResult{Seconds: time.Since(started).Seconds(), Interrupted: end.Interrupted}
	s.report(true)
	if err := sink.finish(); err != nil {
		return nil, err
	}
	if out != nil {
		if err := out.commit(); err != nil {
			return nil, err
		}
	}
	if err := rejects.commit(); err != nil {
		return nil, err
	}
	if err := s.writeSummary(work); err != nil {
		return nil, err
	}
	for _, v := range s.summary {
		result.Observations += v.Observations
		result.Rejected += v.Rejected
		result.Decisions += v.Decisions
		result.Anomalies += v.Anomalies
	}
	if result.Observations != end.Rows || result.Decisions != end.Rows {
		return nil, jobs.Errorf(jobs.CodeInternal, "stream %s: %d rows read, %d sent, %d decided: the three must be equal", s.id, result.Observations, end.Rows, result.Decisions)
	}
	result.LatencyP50, result.LatencyP99 = sink.latency(50), sink.latency(99)
	return result, nil
}

func (s *stream) writeSummary(ctx context.Context) error {
	w, err := s.Files.create(ctx, s.spec.Summary)
	if err != nil {
		return err
	}
	defer w.abort()
	if err := json.NewEncoder(w).Encode(s.summary); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return w.commit()
}

// drain reads decisions until the end of the log.
func (s *stream) drain(ctx context.Context, sink *sink) (end jobs.EndOfInput, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := s.out.Read(ctx, 1)
	if err != nil {
		cancel(nil)
		return end, err
	}
	// The reader waits in a goroutine of its own, which ends before this function does.
	entries := make(chan jobs.Entry)
	failed := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Add(1)
	go func() {
		defer reading.Done()
		defer r.Close()
		for {
			e, err := r.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case entries <- e:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
		}
	}()
	defer reading.Wait()
	defer cancel(nil)

	look := time.NewTicker(time.Second)
	defer look.Stop()
	quiet := time.Now() // since when a decision has been due and none has come
	for {
		select {
		case err := <-failed:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return end, err
		case <-look.C:
			if quiet, err = s.overdue(quiet); err != nil {
				return end, err
			}
			s.report(false)
		case e := <-entries:
			if done, err := s.entry(ctx, e, &end, sink); done || err != nil {
				return end, err
			}
			quiet = time.Now() // a webhook may have taken its time
		}
	}
}

// overdue says since when a decision is due, and whether that is too long. A slow source is no stall.
func (s *stream) overdue(since time.Time) (time.Time, error) {
	s.mu.Lock()
	due, begun := s.sent > s.decided, s.decided > 0
	s.mu.Unlock()
	stall := s.Stall
	if stall == 0 {
		stall = defaultStall
	}
	switch {
	case !due:
		return time.Now(), nil
	case time.Since(since) < stall:
		return since, nil
	case !begun:
		return since, jobs.Errorf(jobs.CodeDevice, "no GPU agent has taken up swarm %s within %v: start one (gpuagent --nats URL)", s.spec.Name, stall)
	}
	return since, jobs.Errorf(jobs.CodeDevice, "swarm %s: no decision for %v: is a GPU agent running? (gpuagent --nats URL)", s.spec.Name, stall)
}

// entry takes one entry of the log of decisions.
func (s *stream) entry(ctx context.Context, e jobs.Entry, end *jobs.EndOfInput, sink *sink) (done bool, err error) {
	switch e.Kind {
	case jobs.EntryDecide:
		d, err := sink.write(e.Data)
		if err != nil {
			return false, err
		}
		// Before the batch counts as decided: one that is slow slows the reading down.
		for _, t := range s.taps {
			if err := t.send(ctx, e.Ref, d); err != nil {
				return false, err
			}
		}
	case jobs.EntryEnd:
		if err := json.Unmarshal(e.Data, end); err != nil {
			return false, fmt.Errorf("end of swarm %s: %w", s.spec.Name, err)
		}
		return true, nil
	case jobs.EntryRejected:
		failure := &jobs.Error{Code: jobs.CodeInternal, Message: "the swarm refused a batch"}
		if err := json.Unmarshal(e.Data, failure); err != nil {
			return false, fmt.Errorf("refusal of swarm %s: %w", s.spec.Name, err)
		}
		return false, failure
	default:
		return false, jobs.Errorf(jobs.CodeInvalid, "swarm %s answers with an entry of unknown kind %q", s.spec.Name, e.Kind)
	}
	s.mu.Lock()
	s.decided = max(s.decided, e.Ref)
	s.mu.Unlock()
	select {
	case s.answered <- struct{}{}:
	default:
	}
	s.report(false)
	return false, nil
}

// report sends progress, at most five times a second.
func (s *stream) report(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); done || now.Sub(s.reported) > 200*time.Millisecond {
		s.reported = now
		p := s.state
		p.Done = done
		s.progress(p)
	}
}
