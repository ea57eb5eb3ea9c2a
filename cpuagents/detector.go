package cpuagents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/eviction"
	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/fleet"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// KindDetector is the kind of job that feeds sources without end through a swarm that lasts. A job
// continues where the one before it ended, so a detector outlives its jobs.
const KindDetector = "detector"

// DetectorSpec is the specification of a job of kind KindDetector.
type DetectorSpec struct {
	// Name is that of the detector, and the id of its swarm.
	Name string `json:"name"`
	// Spec is the specification of the swarm, with the number of its groups.
	Spec json.RawMessage `json:"spec"`
	// Candidates name the decisions, the most unusual last.
	Candidates []string `json:"candidates"`
	// Explain adds an explanation to each decision.
	Explain bool `json:"explain,omitempty"`
	// Fleet limits the incidents of all entities that are shown; nil for no limit.
	Fleet *fleet.Options `json:"fleet,omitempty"`
	// Columns must accept rows in any order: the group of an entity finds late ones.
	Columns rows.ColumnSpec `json:"columns"`
	// Sources are up to 64 sources that last, see source.Lasts. Without a key each is a group.
	Sources []source.Series `json:"sources"`
	// Sinks get the decisions, 1 to 8 with the webhook.
	Sinks   []sink.Spec       `json:"sinks,omitempty"`
	Webhook *sink.WebhookSpec `json:"webhook,omitempty"`
	// BatchRows is the most rows of a batch, 1 to 4096; 0 means 4096.
	BatchRows int `json:"batch_rows,omitempty"`
	// Evict lets entities give their groups to others; nil: rows of entities beyond the number of
	// groups are rejected.
	Evict *EvictSpec `json:"evict,omitempty"`
}

// Groups returns the number of groups of the swarm of a detector.
func (s *DetectorSpec) Groups() int {
	if n := s.Columns.Entities(); n > 0 {
		return n
	}
	return len(s.Sources)
}

// Check returns an error of class jobs.CodeInvalid that names what is wrong with the specification
// and the cure. It opens no source and no sink.
func (s *DetectorSpec) Check() error {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "detector %s: %s", s.Name, fmt.Sprintf(format, args...))
	}
	if err := jobs.CheckID("detector", s.Name); err != nil {
		return err
	}
	if err := s.Columns.CheckKey(swarms.MaxGroups); err != nil {
		return bad("columns: %v", err)
	}
	if s.Fleet != nil {
		if err := s.Fleet.Check(); err != nil {
			return bad("fleet: %v", err)
		}
	}
	if s.Evict != nil {
		if err := s.Evict.check(s.Columns); err != nil {
			return bad("evict: %v", err)
		}
	}
	switch {
	case s.BatchRows < 0 || s.BatchRows > batch.MaxRows:
		return bad("batch_rows %d: use 1 to %d", s.BatchRows, batch.MaxRows)
	case len(s.Candidates) == 0 || len(s.Columns.Features) == 0:
		return bad("candidates and columns.features must not be empty")
	case len(s.Sources) == 0 || len(s.Sources) > maxRemote:
		return bad("%d sources: use 1 to %d", len(s.Sources), maxRemote)
	case len(s.Sinks) == 0 && s.Webhook == nil:
		return bad("it has no sink: name one, such as [{\"uri\":\"nats:STREAM/SUBJECT\"}], or a webhook")
	}
	seen := map[string]bool{}
	for _, src := range s.Sources {
		switch {
		case src.Name == "" || seen[src.Name]:
			return bad("source %q: each source needs a name of its own", src.Name)
		case !source.Lasts(src.URI):
			return bad("source %s: %s cannot be read for ever: use %s, or exoswarm run for a source with an end",
				src.Name, src.URI, source.LastingKinds())
		}
		seen[src.Name] = true
	}
	return nil
}

// DetectorProgress is what a detector reports while it runs, and its result when it is paused. The
// counts are those of all its jobs since it was created. The other members are of this job.
type DetectorProgress struct {
	Rows      uint64 `json:"rows"`
	Rejected  uint64 `json:"rejected"`
	Decisions uint64 `json:"decisions"`
	Anomalies uint64 `json:"anomalies"`
	Dropped
	Keyless Keyless `json:"keyless,omitzero"`
	// Entities have a group. Evicted counts those that lost theirs, and Returned those that got one
	// again with their state.
	Entities int    `json:"entities,omitempty"`
	Evicted  uint64 `json:"evicted,omitempty"`
	Returned uint64 `json:"returned,omitempty"`
	// SourceFailures counts failed attempts to reach a source.
	SourceFailures uint64 `json:"source_failures,omitempty"`
	// LatencyP50 and LatencyP99 are milliseconds from the arrival of the first message of a
	// document to the decisions of its rows.
	LatencyP50 float64 `json:"latency_p50_ms"`
	LatencyP99 float64 `json:"latency_p99_ms"`
	// Rate is the number of rows per second since the report before. Pending rows have no decision
	// yet.
	Rate    float64 `json:"rows_per_s,omitempty"`
	Pending uint64  `json:"pending,omitempty"`
	// LastDecision is when the sinks took the last decision.
	LastDecision time.Time `json:"last_decision,omitzero"`
	// Unreachable has the source that cannot be read now, with the error; empty if there is none.
	// LastReject is the place and the reason of the last rejected row.
	Unreachable string `json:"unreachable,omitempty"`
	LastReject  string `json:"last_reject,omitempty"`
	// Waiting says what the detector waits for; empty if it works.
	Waiting string `json:"waiting,omitempty"`
}

// detection is one job of a detector. The goroutine of feed reads the sources, and that of collect
// sends decisions to the sinks. stream.mu guards the fields from progress on.
type detection struct {
	*stream
	spec  DetectorSpec
	state *commitlog.State
	log   *jobLogger

	// Of the goroutine that feeds.
	batch   *feed.Batch
	next    commitlog.Mark // the state behind the rows that were read
	dirty   bool           // next has more than the last mark
	readers []*source.LastingReader
	stored  int             // marks since the last trim of the journals
	evict   *feed.Evictions // nil if entities keep their groups
	looked  time.Time       // for a later attempt

	rejected string // place and reason of the last rejected row

	now     DetectorProgress
	hist    *hdrhistogram.Histogram // microseconds
	counted uint64                  // the place of the last answer that is counted
	reached uint64                  // the place of the last answer that the sinks have taken
	due     []uint64                // by shard: the last entry that this attempt has appended

	rowsReported uint64          // at the last report
	summaries    *explainlog.Log // of the goroutine that collects; nil without explanations
	answers      *commitlog.Answers
	window       feed.Window // the entries whose decisions the sinks have not taken
	agents       int         // of a group
}

// HandleDetector is the jobs.Handler for KindDetector. It returns a *DetectorProgress when the job
// is asked to finish. The swarm and its logs stay. An error that is jobs.ErrFenced means that
// another attempt goes on.
func (s *Streamer) HandleDetector(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	if err := s.Files.Ready(); err != nil {
		return nil, err
	}
	s = s.of(job)
	d := &detection{
		stream: &stream{Streamer: s, id: job.ID, progress: progress, resumes: true},
		hist:   hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
		log:    newJobLogger(jobs.Logger(ctx)),
	}
	// A job that is asked to finish before it has begun does so in order: the sinks get what an
	// earlier attempt has left.
	setup, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, jobs.ErrFinish) {
			cancel(cause)
		}
	})()
	err := d.attempt(ctx, setup, job)
	// A call that ctx ended says only that it was cancelled, and an attempt that was stopped
	// between two batches ends without an error: the job is done only by ErrFinish or by the end of
	// its sources.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, jobs.ErrFinish) &&
		(err == nil || errors.Is(err, context.Canceled)) {
		err = cause
	}
	s.Files.NoteScratch(err)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	result := d.now
	return &result, nil
}

// attempt executes the job. Mistakes are found before the swarm is made. ctx is that of setup,
// which a request to finish does not end; whole is that of the job.
func (d *detection) attempt(whole, ctx context.Context, job jobs.Job) error {
	if err := json.Unmarshal(job.Spec, &d.spec); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "job %s: detector spec: %v", job.ID, err)
	}
	if d.spec.BatchRows == 0 {
		d.spec.BatchRows = batch.MaxRows
	}
	d.spec.Columns.AnyOrder = true
	if err := d.spec.Check(); err != nil {
		return err
	}
	d.stream.spec = StreamSpec{
		Name: d.spec.Name, Spec: d.spec.Spec, Candidates: d.spec.Candidates, Columns: d.spec.Columns, Drops: true,
		Explain: d.spec.Explain, Fleet: d.spec.Fleet,
		Sinks: d.spec.Sinks, Webhook: d.spec.Webhook, BatchRows: d.spec.BatchRows,
	}
	d.series = d.spec.Sources
	resources := d.sourceResources()
	resources.Endless = true
	for i, src := range d.spec.Sources {
		if _, err := resources.Check(ctx, d.spec.Name, i, src, d.spec.Columns); err != nil {
			return err
		}
	}
	held := d.Files.Hold(ctx, "detector "+d.spec.Name)
	defer held.Release()
	exists, err := d.findSwarm(ctx)
	if err != nil {
		return err
	}
	known := d.openEntities(held)
	// The key of the swarm is in the ids of messages, so that a later detector of the same name
	// does not repeat them.
	if d.sinks, err = d.openSinks(d.record.Key(), d.stream.spec); err != nil {
		return err
	}
	for _, t := range d.sinks {
		defer t.Close()
	}
	if !exists {
		if err := d.Queue.CreateSwarm(ctx, d.record); errors.Is(err, jobs.ErrExists) {
			return jobs.Retry(fmt.Errorf("detector %s: its swarm is being made: %w", d.spec.Name, err))
		} else if err != nil {
			return err
		}
	}
	log := d.stream.log
	kept, err := swarms.ConsistencyOf(d.spec.Spec)
	if err != nil {
		return err
	}
	for k := range d.record.ShardCount() {
		for _, l := range []swarms.Log{log(k, swarms.In), log(k, swarms.Out)} {
			if err := l.Create(ctx, kept); err != nil {
				return err
			}
		}
	}
	d.state, err = commitlog.Open(ctx, commitlog.Options{
		Record: d.record, Log: log, Logs: commitlog.ClusterLogs, Dictionary: known,
	})
	if err != nil {
		return err
	}
	if d.evict != nil {
		if d.evict.States, err = statelog.OpenStates(ctx, log(commitlog.ClusterLogs.States, swarms.In)); err != nil {
			return err
		}
		d.evict.Log, d.evict.Settled = d.state, slices.Clone(d.state.After)
	}
	if err := d.openSummaries(ctx); err != nil {
		return err
	}
	for i, t := range d.sinks {
		if err := t.Open(ctx, log(sinkShard+i, swarms.Out)); err != nil {
			return err
		}
	}
	return d.run(whole)
}

// openEntities makes the dictionary of the detector, nil without a key. Its memory is taken from held.
func (d *detection) openEntities(held *inputmem.Hold) commitlog.Dictionary {
	most := d.spec.Columns.Entities()
	switch {
	case most > 0 && d.spec.Evict != nil:
		d.evict = &feed.Evictions{Eviction: eviction.New(eviction.Options{
			Most: most, After: d.spec.Evict.after(), StateBytes: d.spec.Evict.StateBytes, Hold: held,
			Group:   d.record.EntityGroup,
			ShardOf: feed.Groups{Record: d.record, Keyed: true}.ShardOf,
		})}
		d.names = d.evict.Names
		return d.evict
	case most > 0:
		d.entities = feed.NewEntities(most, held)
		d.names = d.entities
		return d.entities
	}
	return nil
}

// findSwarm sets the record of the swarm of the detector, and reports whether it is stored. The
// swarm of another owner or with another specification is refused: its agents have learnt other
// things, and its rows belong to somebody. The record of a new swarm is stored by the caller, after
// all that can be wrong was checked.
func (d *detection) findSwarm(ctx context.Context) (exists bool, err error) {
	record, err := d.Queue.Swarm(ctx, d.spec.Name)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		shards, err := d.shardsOf()
		d.record = swarms.Swarm{
			Version: jobs.Version, ID: d.spec.Name, Nonce: swarms.NewNonce(), Name: d.spec.Name, Spec: d.spec.Spec,
			Groups: d.spec.Groups(), Shards: shards, Created: time.Now().UTC(),
		}
		return false, err
	case err != nil:
		return false, err
	case record.Ending:
		return false, jobs.Retry(fmt.Errorf("swarm %s is being removed", d.spec.Name))
	case record.Owner != "" || !sameJSON(record.Spec, d.spec.Spec):
		return false, jobs.Errorf(
			jobs.CodeInvalid, "detector %s: there is a swarm of that name with another specification, which is left "+
				"as it is: choose another name", d.spec.Name,
		)
	}
	d.record = record
	return true, nil
}

// sameJSON reports whether two documents have the same text without their spaces.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// run reads until ctx ends. With jobs.ErrFinish the rows that were read are decided, and the sinks
// have all decisions when it returns; with another cause everything stops at once, and the next
// attempt continues from what is stored. The error of the first side that fails is that of the job,
// and both sides have ended when run returns.
func (d *detection) run(ctx context.Context) error {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, jobs.ErrFinish) {
			cancel(cause)
		}
	})()
	d.next = d.state.Last
	d.next.Sources = append([]source.Place{}, d.state.Last.Sources...)
	for len(d.next.Sources) < len(d.spec.Sources) {
		d.next.Sources = append(d.next.Sources, source.Place{})
	}
	if err := d.openAnswers(work); err != nil {
		return err
	}
	d.log.Info("detector reads", "rows", d.now.Rows, "decisions", d.now.Decisions, "sources", len(d.spec.Sources))
	collecting := make(chan error, 1)
	reading, stop := context.WithCancelCause(work)
	defer stop(nil)
	go func() {
		err := d.collect(reading)
		if err != nil {
			cancel(err)
		}
		collecting <- err
	}()
	err := d.feed(ctx, work)
	if err == nil { // it was asked to finish
		err = d.awaitLast(work)
	}
	if err == nil {
		stop(errCollected)
	} else {
		cancel(err)
	}
	<-collecting
	if cause := context.Cause(work); cause != nil {
		return cause
	}
	if err == nil {
		err = d.settle(work)
	}
	d.report(true)
	return err
}

// openAnswers opens the answers that the sinks do not have, with the counts of those that they have.
func (d *detection) openAnswers(ctx context.Context) error {
	of, err := d.sharding()
	if err != nil {
		return err
	}
	c := d.state.Collected
	d.agents, d.counted, d.reached = of.AgentsPerGroup, c.Counted, c.Answer
	from := c.Answer + 1
	if d.summaries != nil {
		from = d.summaries.Next()
	}
	var at []uint64
	if d.answers, at, err = d.state.Answers(ctx, from); err != nil {
		return err
	}
	d.window = feed.NewWindow(at)
	if d.evict != nil {
		d.evict.Window = d.window
	}
	if n := d.answers.Trimmed(); n > 0 {
		d.log.Warn("answers were removed before the sinks had their decisions: the log was trimmed", "answers", n)
	}
	d.now = DetectorProgress{
		Rows: d.next.Rows, Rejected: d.next.Rejected, Keyless: Keyless(d.next.Keyless), Decisions: c.Decisions,
		Anomalies: c.Anomalies, Dropped: Dropped{Late: c.Late, Duplicates: c.Duplicates}, Evicted: d.next.Evicted,
		Returned: d.next.Returned,
	}
	return nil
}

// finishPatience bounds the wait for the last decisions of a detector that finishes.
const finishPatience = 20 * time.Second

// awaitLast waits for the decisions of all rows that were read. Decisions that do not come in time
// are sent to the sinks by the next job.
func (d *detection) awaitLast(work context.Context) error {
	ctx, cancel := context.WithTimeout(work, finishPatience)
	defer cancel()
	err := d.window.All(ctx, d.state.After)
	if err == nil || work.Err() != nil {
		return err
	}
	d.log.Warn("the last decisions did not come in time: they are sent to the sinks when the detector continues")
	return nil
}

// settle stores what the sinks hold and all positions, when the detector finishes. The sinks end at
// the same time, so that several destinations that are away take as long as one. The next job
// then sends nothing again, and a sink of files has all decisions in complete files.
func (d *detection) settle(ctx context.Context) error {
	ends := make([]error, len(d.sinks))
	var ending sync.WaitGroup
	for i, t := range d.sinks {
		ending.Go(func() { ends[i] = t.End(ctx) })
	}
	ending.Wait()
	if err := errors.Join(ends...); err != nil {
		return err
	}
	return d.state.NoteCollected(ctx, d.position())
}

// report sends the progress of the job, at most once a second unless now is set.
func (d *detection) report(now bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := time.Now(); now || at.Sub(d.reported) > time.Second {
		p := &d.now
		if since := at.Sub(d.reported); !d.reported.IsZero() && since > time.Second {
			p.Rate = float64(p.Rows-d.rowsReported) / since.Seconds()
		}
		d.reported, d.rowsReported = at, p.Rows
		p.Pending = p.Rows - min(p.Rows, p.Decisions+p.Sum())
		if d.entities != nil {
			p.Entities = d.entities.Len()
		}
		p.LatencyP50 = float64(d.hist.ValueAtPercentile(50)) / 1000
		p.LatencyP99 = float64(d.hist.ValueAtPercentile(99)) / 1000
		d.progress(*p)
	}
}
