package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Input is a source of a detector.
type Input interface {
	// Open opens the source behind a place. again is the place up to which its rows are needed again;
	// nil if none are. It fails with ErrNotAgain if the source does not have them. The end of ctx
	// ends the waiting for rows. The caller closes the reader.
	Open(ctx context.Context, at feed.Place, again *feed.Place) (InputReader, error)
	// Trim removes what is before a place, which is stored.
	Trim(ctx context.Context, at feed.Place) error
}

// ErrNotAgain is the error of a source that does not have rows again that it has returned.
var ErrNotAgain = errors.New("the source does not have its rows again")

// ErrSettle is source.ErrPause of a reader that continues when all rows have their decisions. The
// rows that come meanwhile are the next batch.
var ErrSettle = fmt.Errorf("%w: it is read on behind the decisions", source.ErrPause)

// InputReader reads a source. One goroutine uses it, except for Failures and Failure.
type InputReader interface {
	// Next returns the next row or reject. source.ErrPause means that the rows before it must go
	// out, since the next one may take a while. io.EOF is the end of the source.
	Next() (rows.Row, *rows.Reject, error)
	// Name names what the last row is from.
	Name() string
	// Place returns the place behind what Next has returned, and Arrived when the row came; the zero
	// time if the reader does not know.
	Place() feed.Place
	Arrived() time.Time
	// Failures returns the number of failed attempts to reach the source, and Failure why the last
	// one has failed, until the next one begins.
	Failures() uint64
	Failure() error
	Close() error
}

// Output is a sink of a detector, with the log of its position.
type Output struct {
	sink.Sink
	Log swarms.Log
}

// IncidentSink is a sink that takes incidents that have ended, before the decisions of the same
// answer.
type IncidentSink interface {
	SendIncidents(number uint64, ended []explain.Incident) error
}

// DetectionOptions are what Detect needs.
type DetectionOptions struct {
	Name   string // of the detector, in messages
	Record swarms.Swarm
	// Log returns a log of the swarm, without a request. The logs of the shards exist.
	Log        func(shard int, d swarms.Direction) swarms.Log
	Logs       feed.Logs
	Columns    rows.ColumnSpec
	Candidates []string
	Agents     int             // of a group
	BatchRows  int             // the most of a batch
	Directory  *feed.Directory // nil without a key: each input is a group
	Inputs     []Input
	Outputs    []Output
	Explainer  *explain.Explainer // nil for none
	Recent     *explain.Recent    // gets all decisions of this job; nil for none
	// Collected is the position of the outputs if none is stored.
	Collected feed.Collected
	Logger    *slog.Logger
	Metrics   *Metrics
	// Stall is the time after which a missing decision is told.
	Stall time.Duration
	// Progress is called with what is done, one call at a time; nil for nothing.
	Progress func(DetectorProgress)

	// Ends has Detect return when all inputs have ended, and fail if the last decisions do not come.
	// Readers end themselves when their context does, behind the rows that they have.
	Ends bool
	// Begun is called with the counts before the first row, when the detector is taken over; nil for
	// nothing.
	Begun func(ctx context.Context, p DetectorProgress) error
	// Rejected is called for each rejected row; nil for nothing.
	Rejected func(*rows.Reject) error
	// Snapshot is called after SnapshotRows rows and at the end, when all rows have their decisions;
	// nil for nothing. It calls settle before it removes entries: the outputs have stored everything
	// then.
	Snapshot     func(ctx context.Context, settle func(context.Context) error) error
	SnapshotRows uint64
}

// detection is a detector that runs. The goroutine of feed reads the inputs. The goroutine of
// collect sends decisions to the outputs. mu guards the fields that follow it.
type detection struct {
	DetectionOptions
	state *feed.State
	log   *jobLogger

	// Of the goroutine that feeds.
	batch   *feed.Batch
	next    feed.Mark // the state behind the rows that were read
	dirty   bool      // next has more than the last mark
	readers []InputReader
	stored  int       // marks since the last trim of the inputs
	fresh   uint64    // rows since the last snapshot
	looked  time.Time // for a later attempt

	// Of the goroutine that collects.
	summaries *explain.SummaryLog // nil without an explainer
	answers   *feed.Answers
	window    feed.Window     // the entries whose decisions the outputs have not taken
	settling  chan chan error // requests to store everything

	mu       sync.Mutex
	rejected string // place and reason of the last rejected row
	now      DetectorProgress
	latency  latencies
	counted  uint64   // the place of the last answer that is counted
	reached  uint64   // the place of the last answer that the outputs have taken
	due      []uint64 // by shard: the last entry that this attempt has appended
	reported time.Time
	before   uint64 // rows at the last report
}

// Detect runs a detector until ctx ends with jobs.ErrFinish, or its inputs do with Ends. Then the
// outputs have all decisions. With another cause it stops at once, and the next attempt continues
// from what is stored. jobs.ErrFenced means that another attempt continues. The progress is what
// was done, with an error too.
func Detect(ctx context.Context, o DetectionOptions) (*DetectorProgress, error) {
	work, cancel := unfinished(ctx)
	defer cancel(nil)
	d := &detection{
		DetectionOptions: o, latency: newLatencies(),
		log: newJobLogger(o.Logger), batch: feed.NewBatch(len(o.Columns.Features), o.BatchRows),
		settling: make(chan chan error),
	}
	if err := d.open(work); err != nil {
		return &d.now, err
	}
	err := d.run(ctx, work, cancel)
	d.mu.Lock()
	defer d.mu.Unlock()
	result := d.now
	return &result, err
}

// open takes the detector over, and opens what is stored and the outputs.
func (d *detection) open(ctx context.Context) (err error) {
	o := feed.StateOptions{Record: d.Record, Log: d.Log, Logs: d.Logs, Collected: d.Collected}
	if d.Directory != nil {
		o.Dictionary = d.Directory
	}
	if d.state, err = feed.OpenState(ctx, o); err != nil {
		return err
	}
	d.next = d.state.Last
	d.next.Sources = append([]feed.Place{}, d.state.Last.Sources...)
	for len(d.next.Sources) < len(d.Inputs) {
		d.next.Sources = append(d.next.Sources, feed.Place{})
	}
	c := d.state.Collected
	d.counted, d.reached = c.Counted, c.Answer
	d.now = DetectorProgress{
		Rows: d.next.Rows, Rejected: d.next.Rejected, Keyless: d.next.Keyless, Decisions: c.Decisions,
		Anomalies: c.Anomalies, Dropped: Dropped{Late: c.Late, Duplicates: c.Duplicates}, Evicted: d.next.Evicted,
		Returned: d.next.Returned,
	}
	if d.Directory != nil {
		d.now.Entities = d.Directory.Len()
	}
	if d.Begun != nil {
		if err := d.Begun(ctx, d.now); err != nil {
			return err
		}
	}
	v := d.evictions()
	if v != nil {
		if v.States, err = statelog.OpenStates(ctx, d.Log(d.Logs.States, swarms.In)); err != nil {
			return d.damaged(err)
		}
		v.Log, v.Settled = d.state, slices.Clone(d.state.After)
	}
	from := c.Answer + 1
	if d.Explainer != nil {
		summaries := d.Log(d.Logs.Summaries, swarms.In)
		if d.summaries, err = explain.OpenSummaryLog(ctx, summaries, d.Explainer, d.Recent, c.Answer); err != nil {
			return d.damaged(err)
		}
		from = d.summaries.Next()
	}
	for _, t := range d.Outputs {
		if err := t.Open(ctx, t.Log); err != nil {
			return err
		}
	}
	var at []uint64
	if d.answers, at, err = d.state.Answers(ctx, from); err != nil {
		return d.damaged(err)
	}
	if d.window = feed.NewWindow(at); v != nil {
		v.Window = d.window
	}
	if n := d.answers.Trimmed(); n > 0 {
		d.log.Warn("answers were removed before the sinks had their decisions: the log was trimmed", "answers", n)
	}
	return nil
}

func (d *detection) evictions() *feed.Evictions {
	if d.Directory == nil {
		return nil
	}
	return d.Directory.Evictions
}

// damaged returns an error of the logs of the detector, with the cure if they are damaged.
func (d *detection) damaged(err error) error {
	if errors.Is(err, statelog.ErrDamaged) {
		return jobs.Errorf(jobs.CodeInternal, "detector %s: %v: %s", d.Name, err, feed.Cure)
	}
	return err
}

// run reads until ctx ends. It returns the error of the first side that fails. Both sides have
// ended when run returns.
func (d *detection) run(ctx, work context.Context, cancel context.CancelCauseFunc) error {
	d.log.Info("detector reads", "rows", d.now.Rows, "decisions", d.now.Decisions, "sources", len(d.Inputs))
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
	if err == nil && d.Snapshot != nil && d.fresh > 0 {
		err = d.snapshot(work)
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

// finishPatience bounds the wait for the last decisions of a detector that finishes, and
// endPatience with DetectionOptions.Ends.
const (
	finishPatience = 20 * time.Second
	endPatience    = time.Minute
)

// awaitLast waits for the decisions of all rows that were read. Decisions that do not come in time
// are sent to the outputs by the next attempt.
func (d *detection) awaitLast(work context.Context) error {
	patience := finishPatience
	if d.Ends {
		patience = endPatience
	}
	ctx, cancel := context.WithTimeoutCause(work, patience, errors.New("the last decisions did not come in time"))
	defer cancel()
	err := d.window.All(ctx, d.state.After)
	if err == nil || work.Err() != nil || d.Ends {
		return err
	}
	d.log.Warn("the last decisions did not come in time: they are sent to the sinks when the detector continues")
	return nil
}

// snapshot stores the state of the agents, and lets what is before it be removed.
func (d *detection) snapshot(ctx context.Context) error {
	if err := d.window.All(ctx, d.state.After); err != nil {
		return err
	}
	d.fresh = 0
	return d.Snapshot(ctx, func(ctx context.Context) error {
		if err := d.state.FindEnds(ctx); err != nil {
			return err
		}
		if err := d.window.All(ctx, d.state.After); err != nil {
			return err
		}
		settled := make(chan error, 1)
		select {
		case d.settling <- settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := <-settled; err != nil {
			return err
		}
		return d.state.Note(ctx, d.state.Last) // the notes of entries that are removed
	})
}

// settle stores what the outputs hold and their position. The outputs end at the same time, so that
// several destinations that are away take as long as one. The next attempt then sends nothing
// again, and a sink of files has all decisions in complete files. The goroutine that collects calls
// it, or its caller when that has ended.
func (d *detection) settle(ctx context.Context) error {
	ends := make([]error, len(d.Outputs))
	var ending sync.WaitGroup
	for i, t := range d.Outputs {
		ending.Go(func() { ends[i] = t.End(ctx) })
	}
	ending.Wait()
	if err := errors.Join(ends...); err != nil {
		return err
	}
	return d.state.NoteCollected(ctx, d.position())
}

// report sends the progress of the detector, at most once a second unless now is set.
func (d *detection) report(now bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := time.Now(); now || at.Sub(d.reported) > time.Second {
		p := &d.now
		if since := at.Sub(d.reported); !d.reported.IsZero() && since > time.Second {
			p.Rate = float64(p.Rows-d.before) / since.Seconds()
		}
		d.reported, d.before = at, p.Rows
		p.Pending = p.Rows - min(p.Rows, p.Decisions+p.Sum())
		p.LatencyP50 = d.latency.percentile(50)
		p.LatencyP99 = d.latency.percentile(99)
		if d.Progress != nil {
			now := *p
			now.Found = d.Recent.Found()
			d.Progress(now)
		}
	}
}

// journalInput is an Input with a journal: source number i of a job.
type journalInput struct {
	resources source.Resources
	journal   swarms.Log
	id        string
	i         int
	series    source.Series
	columns   rows.ColumnSpec
}

// Open implements Input. The journal has the rows of the last batch, since it is trimmed to batches
// that all shards have.
func (j *journalInput) Open(ctx context.Context, at feed.Place, _ *feed.Place) (InputReader, error) {
	return j.resources.OpenLasting(ctx, j.journal, j.id, j.i, j.series, j.columns, at)
}

func (j *journalInput) Trim(ctx context.Context, at feed.Place) error {
	return source.TrimJournal(ctx, j.journal, at)
}
