package cpuagents

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// counts are the rows and decisions of a run, by series and together. feed and collect change
// different fields of a summary.
type counts struct {
	metrics  *Metrics
	progress func(any) // is called with mu held, so one call at a time

	mu       sync.Mutex
	recent   *explain.Recent
	summary  []SeriesSummary // by group
	state    StreamProgress
	metered  StreamProgress // the part of state that metrics has
	reported time.Time
}

// addRows adds rows that were read. group is the group of their series; -1 for rows of entities,
// which addEntities adds to the summary.
func (c *counts) addRows(group int, good, rejected uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if group >= 0 {
		c.summary[group].Observations += good
		c.summary[group].Rejected += rejected
	}
	c.state.Observations += good
	c.state.Rejected += rejected
}

// addEntities appends new entities to the summary, and adds a row to each group in seen, and a
// reject to each in late.
func (c *counts) addEntities(fresh []SeriesSummary, seen, late []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.summary = append(c.summary, fresh...)
	c.state.Entities += len(fresh)
	for _, g := range seen {
		c.summary[g].Observations++
	}
	for _, g := range late {
		c.summary[g].Rejected++
	}
}

// addKeyless counts a reject without a group.
func (c *counts) addKeyless(r *rows.Reject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Keyless.Count(r)
}

// check refuses a decision for a group or a candidate that the run does not have. The batch comes
// from another process.
func (c *counts) check(d *batch.Decisions, candidates int) error {
	if d.Candidates != candidates {
		return jobs.Errorf(
			jobs.CodeInvalid, "decisions between %d candidates, the spec names %d", d.Candidates, candidates,
		)
	}
	c.mu.Lock()
	groups := len(c.summary)
	c.mu.Unlock()
	for i, g := range d.Group {
		if int(g) >= groups || d.Decision[i] != batch.NoDecision && int(d.Decision[i]) >= candidates {
			return jobs.Errorf(
				jobs.CodeInvalid, "decision %d: group %d and candidate %d are not of this swarm", i, g, d.Decision[i],
			)
		}
	}
	return nil
}

func (c *counts) addDecisions(d *batch.Decisions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.Add(d, time.Now().UTC())
	for i, g := range d.Group {
		sum := &c.summary[g]
		if !sum.count(d, i) {
			sum.Decisions++
			c.state.Decisions++
		} else {
			c.state.count(d, i)
		}
		if int(d.Decision[i]) == d.Candidates-1 {
			sum.Anomalies++
		}
	}
}

// report sends the progress of the job, at most five times a second. The last report of a job has
// done set and is always sent.
func (c *counts) report(done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); done || now.Sub(c.reported) > 200*time.Millisecond {
		c.reported = now
		c.meterLocked()
		p := c.state
		p.Done, p.Found = done, c.recent.Found()
		c.progress(p)
	}
}

// meter adds to the metrics what the job has done since the last call.
func (c *counts) meter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meterLocked()
}

func (c *counts) meterLocked() {
	c.metrics.add(c.metered, c.state)
	c.metered = c.state
}

// latencies is a histogram of times in microseconds, from 1 to an hour, with three digits.
type latencies struct{ *hdrhistogram.Histogram }

func newLatencies() latencies {
	return latencies{hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
}

// record adds a time. A time beyond the bounds counts as the bound.
func (l latencies) record(took time.Duration) {
	_ = l.RecordValue(min(max(took.Microseconds(), 1), l.HighestTrackableValue()))
}

func (l latencies) percentile(percent float64) float64 {
	return float64(l.ValueAtPercentile(percent)) / 1000
}
