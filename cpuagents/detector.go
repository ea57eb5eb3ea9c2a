package cpuagents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// KindDetector is the kind of job that feeds sources without end through a swarm that lasts. A job
// continues where the previous job ended, so a detector outlives its jobs.
const KindDetector = "detector"

// DetectorSpec is the specification of a job of kind KindDetector.
type DetectorSpec struct {
	// Name is the name of the detector and the id of its swarm.
	Name string `json:"name"`
	// Spec is the specification of the swarm, with the number of its groups.
	Spec json.RawMessage `json:"spec"`
	// Candidates name the decisions, the most unusual last.
	Candidates []string `json:"candidates"`
	// Explain adds an explanation to each decision.
	Explain bool `json:"explain,omitempty"`
	// Fleet limits the incidents of all entities that are shown; nil for no limit.
	Fleet *explain.FleetLimits `json:"fleet,omitempty"`
	// Columns must accept rows in any order: the group of an entity finds late ones.
	Columns rows.ColumnSpec `json:"columns"`
	// Sources are up to 64 sources that last, see source.Lasts. Without a key each is a group.
	Sources []source.Series `json:"sources"`
	// Sinks get the decisions, at most 8 with the webhook. Without one its incidents are in its
	// progress alone.
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
// counts include all its jobs since it was created. The other members are about this job.
type DetectorProgress struct {
	Rows      uint64 `json:"rows"`
	Rejected  uint64 `json:"rejected"`
	Decisions uint64 `json:"decisions"`
	Anomalies uint64 `json:"anomalies"`
	Dropped
	Keyless feed.Keyless `json:"keyless,omitzero"`
	// Entities have a group. Evicted counts entities that lost their group, and Returned entities
	// that got a group again with their state.
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
	// Found is what this job has found.
	Found *explain.Found `json:"found,omitempty"`
}

type detectorJob struct {
	swarmJob
	detector DetectorSpec
}

// HandleDetector is the jobs.Handler for KindDetector. It returns a *DetectorProgress when the job
// is asked to finish. The swarm and its logs stay. An error that is jobs.ErrFenced means that
// another attempt continues.
func (s *Streamer) HandleDetector(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	if err := s.Files.Ready(); err != nil {
		return nil, err
	}
	s = s.of(job)
	d := &detectorJob{swarmJob: swarmJob{agent: s, id: job.ID, progress: progress, resumes: true}}
	// A job that is asked to finish before it has begun does so in order: the sinks get what an
	// earlier attempt has left.
	setup, cancel := unfinished(ctx)
	defer cancel(nil)
	result, err := d.attempt(ctx, setup, job)
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
	return result, nil
}

// attempt executes the job. Mistakes are found before the swarm is made. ctx is the context of
// setup, which a request to finish does not end; whole is the context of the job.
func (d *detectorJob) attempt(whole, ctx context.Context, job jobs.Job) (*DetectorProgress, error) {
	if err := json.Unmarshal(job.Spec, &d.detector); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: detector spec: %v", job.ID, err)
	}
	if d.detector.BatchRows == 0 {
		d.detector.BatchRows = batch.MaxRows
	}
	d.detector.Columns.AnyOrder = true
	if err := d.detector.Check(); err != nil {
		return nil, err
	}
	d.spec = StreamSpec{
		Name: d.detector.Name, Spec: d.detector.Spec, Candidates: d.detector.Candidates, Columns: d.detector.Columns,
		Drops:   true,
		Explain: d.detector.Explain, Fleet: d.detector.Fleet,
		Sinks: d.detector.Sinks, Webhook: d.detector.Webhook, BatchRows: d.detector.BatchRows,
	}
	d.series = d.detector.Sources
	resources := d.agent.sourceResources()
	resources.Endless, resources.Logger = true, jobs.Logger(ctx)
	for i, src := range d.detector.Sources {
		if _, err := resources.Check(ctx, d.detector.Name, i, src, d.detector.Columns); err != nil {
			return nil, err
		}
	}
	held := d.agent.Files.Hold(ctx, "detector "+d.detector.Name)
	defer held.Release()
	exists, err := d.findSwarm(ctx)
	if err != nil {
		return nil, err
	}
	sharding, err := d.sharding()
	if err != nil {
		return nil, err
	}
	o := DetectionOptions{
		Name: d.detector.Name, Record: d.record, Log: d.log, Logs: feed.ClusterLogs, Columns: d.detector.Columns,
		Candidates: d.detector.Candidates, Agents: sharding.AgentsPerGroup, BatchRows: d.detector.BatchRows,
		Logger: jobs.Logger(ctx), Metrics: d.agent.Metrics, Stall: d.agent.Stall,
		Progress: func(p DetectorProgress) { d.progress(p) },
	}
	if d.detector.Columns.Entities() > 0 {
		after, bytes := time.Duration(0), 0
		if e := d.detector.Evict; e != nil {
			after, bytes = e.after(), e.StateBytes
		}
		o.Directory = feed.NewDirectory(d.record, after, bytes, held)
		d.names = o.Directory
	}
	for i, src := range d.detector.Sources {
		o.Inputs = append(o.Inputs, &journalInput{
			resources: resources, journal: d.journal(i), id: d.detector.Name, i: i, series: src,
			columns: d.detector.Columns,
		})
	}
	// The key of the swarm is in the ids of messages, so that a later detector of the same name
	// does not repeat them.
	if d.sinks, err = d.openSinks(d.record.Key(), d.spec); err != nil {
		return nil, err
	}
	for i, t := range d.sinks {
		defer t.Close()
		o.Outputs = append(o.Outputs, Output{t, d.log(sinkShard+i, swarms.Out)})
	}
	if !exists {
		if err := d.agent.Queue.CreateSwarm(ctx, d.record); errors.Is(err, jobs.ErrExists) {
			return nil, jobs.Retry(fmt.Errorf("detector %s: its swarm is being made: %w", d.detector.Name, err))
		} else if err != nil {
			return nil, err
		}
	}
	if err := d.createLogs(ctx); err != nil {
		return nil, err
	}
	if err := d.explains(); err != nil {
		return nil, err
	}
	o.Explainer, o.Recent = d.explainer, explain.NewRecent(d.record, d.layout())
	return Detect(whole, o)
}

// findSwarm sets the record of the swarm of the detector, and reports whether it is stored. The
// swarm of another owner or with another specification is refused: its agents have learnt from
// other rows. The caller stores the record of a new swarm after all checks.
func (d *detectorJob) findSwarm(ctx context.Context) (exists bool, err error) {
	record, err := d.agent.Queue.Swarm(ctx, d.detector.Name)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		shards, err := d.shardCount("detector "+d.detector.Name, d.detector.Groups())
		d.record = swarms.Swarm{
			Version: jobs.Version, ID: d.detector.Name, Nonce: swarms.NewNonce(), Name: d.detector.Name,
			Spec:   d.detector.Spec,
			Groups: d.detector.Groups(), Shards: shards, Created: time.Now().UTC(),
		}
		return false, err
	case err != nil:
		return false, err
	case record.Ending:
		return false, jobs.Retry(fmt.Errorf("swarm %s is being removed", d.detector.Name))
	case record.Owner != "" || !sameJSON(record.Spec, d.detector.Spec):
		return false, jobs.Errorf(
			jobs.CodeInvalid, "detector %s: there is a swarm of that name with another specification, which is left "+
				"as it is: choose another name", d.detector.Name,
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
