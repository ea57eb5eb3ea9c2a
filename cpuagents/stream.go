// Package cpuagents does the I/O of swarms: it reads sources, feeds their rows through the log of a
// swarm, and writes the decisions of the GPU agents. It holds no GPU code; only the queue connects
// it to a GPU agent.
package cpuagents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// stream is one attempt at a stream job. Two goroutines share it: feed reads the sources, and
// collect reads the decisions. mu guards the fields that follow it up to reported. They exchange
// nothing but numbers of batches: rows go to the swarm by its log, and come back as decisions.
type stream struct {
	*Streamer
	id       string
	spec     StreamSpec
	series   []source.Series
	record   swarms.Swarm // of the job; without an id until it is claimed
	in, out  swarms.Log   // of the first shard
	shards   []*shardLog
	progress func(any)
	remove   []func(context.Context) error // removes what its sources keep on the queue beside its logs
	resumes  bool                          // a later job sends what the sinks hold at the end of this one

	mu       sync.Mutex
	summary  []SeriesSummary // feed and collect write different fields
	state    StreamProgress
	sent     uint64                // batches appended
	decided  uint64                // batches answered: each has one decision, in their order
	plans    map[uint64]*batchPlan // of batches that are not answered, by number; for several shards
	over     bool                  // the input has ended
	total    uint64                // batches of it then
	reported time.Time
	counted  StreamProgress // the state as of the last count

	answered chan struct{}   // collect has increased decided
	entities *feed.Entities  // nil for a job without a key
	evict    *runEviction    // nil if entities keep their groups
	names    encode.Entities // of the groups in the outputs; nil without a key
	read     uint64          // batches whose rows were read, by mu
	ahead    chan struct{}   // feed has increased read
	refused  error           // why the last question of another client was refused; for collect
	noRows   bool            // no input has a valid row; set before the reading fails
	// mostRejected is the source with the largest share of rejects; of the goroutine that reads.
	mostRejected RejectedRows
	early        uint64 // likewise: rows whose timestamp is a number before 1990
	sinks        []sink.Sink
	// explainer is that of the goroutine that collects; nil if nobody asks for explanations, incidents
	// or a limit of the fleet. incidents are those that have ended.
	explainer *explain.Explainer
	incidents []explain.Incident
}

// run reads all series, and returns when all decisions are written. The end of ctx with
// jobs.ErrFinish ends only the reading. Outputs become visible at the end, in this order: the
// decisions, the rejects, the summary. After an error none of them appears, except the rejects of
// an input without a valid row. All goroutines have ended when run returns.
func (s *stream) run(ctx context.Context) (*StreamResult, error) {
	started := time.Now()
	// Both sides end together: the first failure stops the other. A request to finish early stops
	// only the reading.
	work, cancel := unfinished(ctx)
	defer cancel(nil)
	var out *files.Output
	var to io.Writer
	if s.spec.Output != "" || len(s.spec.Sinks) == 0 && s.spec.Anomalies == "" {
		var err error
		if out, err = s.Files.Create(work, s.spec.Output); err != nil {
			return nil, err
		}
		defer out.Abort()
		to = out
	}
	rejects, err := s.Files.Create(work, s.spec.Rejects)
	if err != nil {
		return nil, err
	}
	defer rejects.Abort()
	kept, err := swarms.ConsistencyOf(s.spec.Spec)
	if err != nil {
		return nil, err
	}
	for _, k := range s.shards {
		for _, l := range []swarms.Log{k.In, k.Out} {
			if err := l.Create(work, kept); err != nil {
				return nil, err
			}
		}
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
	for i, t := range s.sinks {
		if err := t.Open(work, s.log(sinkShard+i, swarms.Out)); err != nil {
			cancel(err)
			fed.Wait()
			return nil, context.Cause(work) // the agent may drain
		}
	}
	if err := s.explains(); err != nil {
		return nil, err
	}
	ordered, err := newOrderedOutput(s, to)
	if err != nil {
		cancel(err)
		fed.Wait()
		return nil, context.Cause(work)
	}
	defer ordered.close()
	end, err := s.collect(work, ordered)
	for _, t := range s.sinks {
		if err == nil {
			err = t.End(work)
		}
	}
	if err != nil {
		cancel(err)
	}
	fed.Wait()
	if cause := context.Cause(work); cause != nil {
		if s.noRows { // the rejects are all that there is to see
			cause = errors.Join(cause, rejects.Commit())
		}
		return nil, cause
	}
	result := &StreamResult{
		Seconds: time.Since(started).Seconds(), Interrupted: end.Interrupted, MostRejected: s.mostRejected,
		Early: s.early,
	}
	s.report(true)
	if err := ordered.finish(); err != nil {
		return nil, err
	}
	if out != nil {
		if err := out.Commit(); err != nil {
			return nil, err
		}
	}
	if err := rejects.Commit(); err != nil {
		return nil, err
	}
	if err := s.writeIncidents(work); err != nil {
		return nil, err
	}
	if err := s.writeSummary(work); err != nil {
		return nil, err
	}
	if s.entities != nil { // rows without an entity are in no summary
		result.Entities, result.Rejected = s.state.Entities, s.state.Rejected
		result.Keyless = s.state.Keyless
	}
	for _, v := range s.summary {
		result.Observations += v.Observations
		if s.entities == nil {
			result.Rejected += v.Rejected
		}
		result.Decisions += v.Decisions
		result.Anomalies += v.Anomalies
		result.Late += v.Late
		result.Duplicates += v.Duplicates
	}
	if answered := result.Decisions + result.Sum(); result.Observations != end.Rows || answered != end.Rows {
		return nil, jobs.Errorf(
			jobs.CodeInternal, "stream %s: %d rows read, %d sent, %d answered: the three must be equal", s.id,
			result.Observations, end.Rows, answered,
		)
	}
	result.LatencyP50, result.LatencyP99 = ordered.latency(50), ordered.latency(99)
	return result, nil
}

// unfinished returns a context that ends with ctx, but not if that ends with jobs.ErrFinish: what has
// begun is ended in order then. The caller ends it.
func unfinished(ctx context.Context) (work context.Context, cancel context.CancelCauseFunc) {
	work, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, jobs.ErrFinish) {
			cancel(cause)
		}
	})
	context.AfterFunc(work, func() { stop() })
	return work, cancel
}

// reached tells collect that all rows of batches up to number were read. It does not block: a
// signal that was not taken yet stands for this one too.
func (s *stream) reached(number uint64) {
	if s.entities == nil && len(s.shards) == 1 {
		return
	}
	s.mu.Lock()
	s.read = number
	s.mu.Unlock()
	s.signalAhead()
}

// signalAhead wakes the goroutine that collects, if it waits for the reading.
func (s *stream) signalAhead() {
	select {
	case s.ahead <- struct{}{}:
	default:
	}
}

// awaitEntities returns when the rows of a batch were read, so that its entities are known. An
// attempt that continues a job finds decisions in the log before it has read their rows again.
func (s *stream) awaitEntities(ctx context.Context, number uint64) error {
	if s.entities == nil {
		return nil
	}
	for {
		s.mu.Lock()
		ready := number <= s.read
		s.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-s.ahead:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// explains makes the explainer, if the job needs one.
func (s *stream) explains() error {
	if !s.spec.Explain && s.spec.Anomalies == "" && s.spec.Fleet == nil {
		return nil
	}
	if f := s.spec.Fleet; f != nil {
		if err := f.Check(); err != nil {
			return jobs.Errorf(jobs.CodeInvalid, "fleet: %v", err)
		}
	}
	s.explainer = explain.New(s.layout(), s.spec.Fleet)
	s.explainer.Late = s.spec.Anomalies != ""
	return nil
}

// writeIncidents writes the incidents in the order of their begins. Those that are open at the end of
// the input say so.
func (s *stream) writeIncidents(ctx context.Context) error {
	if s.spec.Anomalies == "" {
		return nil
	}
	w, err := s.Files.Create(ctx, s.spec.Anomalies)
	if err != nil {
		return err
	}
	defer w.Abort()
	all := append(s.incidents, s.explainer.Finish()...)
	all = explain.Relate(all, len(s.spec.Columns.Key) > 0)
	buffered := bufio.NewWriter(w)
	out := explain.NewWriter(buffered, s.layout(), s.spec.AnomaliesFormat == "csv")
	for i := range all {
		if err := out.Write(&all[i]); err != nil {
			return fmt.Errorf("write the incidents: %w", err)
		}
	}
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return fmt.Errorf("write the incidents: %w", err)
	}
	return w.Commit()
}

// writeSummary writes the list of SeriesSummary. It is the last output of a job, so its presence
// shows that the others are complete. A program that waits for a job without the queue waits for
// this file.
func (s *stream) writeSummary(ctx context.Context) error {
	w, err := s.Files.Create(ctx, s.spec.Summary)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := json.NewEncoder(w).Encode(s.summary); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return w.Commit()
}

// report sends the progress of the job, at most five times a second. The last report of a job has
// done set and is always sent.
func (s *stream) report(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); done || now.Sub(s.reported) > 200*time.Millisecond {
		s.reported = now
		s.countLocked()
		p := s.state
		p.Done = done
		s.progress(p)
	}
}

// count adds to the metrics what the job has done since the last count.
func (s *stream) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked()
}

// countLocked is count with mu held.
func (s *stream) countLocked() {
	s.Metrics.add(s.counted, s.state)
	s.counted = s.state
}
