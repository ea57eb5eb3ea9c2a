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

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// stream is one attempt at a stream job. Two goroutines share it: batcher.feed reads the sources,
// and collect reads the decisions.
type stream struct {
	swarmJob
	logs     *runLogs
	remove   []func(context.Context) error // removes what its sources keep on the queue in addition to its logs
	entities *feed.Entities                // nil for a job without a key
	evict    *runEviction                  // nil if entities keep their groups
	x        *exchange
	counts   *counts
	refused  error // why the last question of another client was refused; for collect
}

// newStream returns an attempt at a job with the resources of its view of an agent.
func newStream(agent *Streamer, id string, progress func(any)) *stream {
	return &stream{
		swarmJob: swarmJob{agent: agent, id: id, progress: progress}, x: newExchange(),
		counts: &counts{metrics: agent.Metrics, progress: progress},
	}
}

// run reads all series, and returns when all decisions are written. The end of ctx with
// jobs.ErrFinish ends only the reading. Outputs become visible at the end, in this order: the
// decisions, the rejects, the summary. After an error none of them appears, except the rejects of
// an input without a valid row. All goroutines have ended when run returns.
func (s *stream) run(ctx context.Context) (*StreamResult, error) {
	started := time.Now()
	// Both sides end together: the first failure stops both. A request to finish early stops only
	// the reading.
	work, cancel := unfinished(ctx)
	defer cancel(nil)
	var out *files.Output
	var to io.Writer
	if s.spec.Output != "" || len(s.spec.Sinks) == 0 && s.spec.Anomalies == "" {
		var err error
		if out, err = s.agent.Files.Create(work, s.spec.Output); err != nil {
			return nil, err
		}
		defer out.Abort()
		to = out
	}
	rejects, err := s.agent.Files.Create(work, s.spec.Rejects)
	if err != nil {
		return nil, err
	}
	defer rejects.Abort()
	if err := s.createLogs(work); err != nil {
		return nil, err
	}
	s.counts.state.Series = len(s.series)
	s.counts.recent = explain.NewRecent(s.record, s.layout())
	reader := newBatcher(s, rejects)

	var fed sync.WaitGroup
	fed.Go(func() {
		if err := reader.feed(ctx, work); err != nil {
			cancel(err)
		}
	})
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
		if reader.noRows { // the rejects are all that there is to see
			cause = errors.Join(cause, rejects.Commit())
		}
		return nil, cause
	}
	result := &StreamResult{
		Seconds: time.Since(started).Seconds(), Interrupted: end.Interrupted, MostRejected: reader.mostRejected,
		Early: reader.early,
	}
	s.counts.report(true)
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
	if err := s.writeIncidents(work, ordered.incidents); err != nil {
		return nil, err
	}
	if err := s.writeSummary(work); err != nil {
		return nil, err
	}
	if s.entities != nil { // rows without an entity are in no summary
		state := s.counts.state
		result.Entities, result.Rejected, result.Keyless = state.Entities, state.Rejected, state.Keyless
	}
	for _, v := range s.counts.summary {
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
	result.LatencyP50, result.LatencyP99 = ordered.latency.percentile(50), ordered.latency.percentile(99)
	return result, nil
}

// unfinished returns a context that ends with ctx, but not if that ends with jobs.ErrFinish: what
// has begun is ended in order then. The caller ends it.
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

// writeIncidents writes the incidents in the order of their starts. Incidents that are open at the
// end of the input say so.
func (s *stream) writeIncidents(ctx context.Context, ended []explain.Incident) error {
	if s.spec.Anomalies == "" {
		return nil
	}
	w, err := s.agent.Files.Create(ctx, s.spec.Anomalies)
	if err != nil {
		return err
	}
	defer w.Abort()
	all := append(ended, s.explainer.Finish()...)
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
// shows that all outputs are complete. A program that waits for a job without the queue waits for
// this file.
func (s *stream) writeSummary(ctx context.Context) error {
	w, err := s.agent.Files.Create(ctx, s.spec.Summary)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := json.NewEncoder(w).Encode(s.counts.summary); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return w.Commit()
}
