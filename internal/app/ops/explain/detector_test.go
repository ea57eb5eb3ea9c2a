package explain_test

import (
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
)

// reading is a detector that reads rows, and has decided all of them.
func reading() *explain.DetectorFacts {
	now := time.Now()
	return &explain.DetectorFacts{
		Name: "d", Now: now, Found: true, State: "running", Servers: queued().Servers,
		Job:   &explain.Reason{Cause: explain.Running},
		Swarm: &explain.Reason{Cause: explain.Idle},
		Counts: &explain.DetectorCounts{
			Rows: 100, Rejected: 3, Decisions: 100, Rate: 2.5, LastDecision: now.Add(-time.Minute),
			LastReject: "p: row 7: bad",
		},
	}
}

var detectorCases = []struct {
	cause explain.Cause
	says  string
	plant func(f *explain.DetectorFacts)
}{
	{explain.Serving, "100 rows read, 3 rejected, 100 decisions, 0 rows without a decision; 2.5 rows/s; the last " +
		"decision was 1m0s ago; the last rejected row: p: row 7: bad", func(*explain.DetectorFacts) {}},
	{explain.NoConnection, "", func(f *explain.DetectorFacts) {
		f.Servers = explain.Facts{Error: errors.New("away")}
		f.Found = false
	}},
	{explain.NoDetector, "there is no detector d", func(f *explain.DetectorFacts) { f.Found = false }},
	{explain.DetectorPaused, "the detector is paused", func(f *explain.DetectorFacts) { f.State = "paused" }},
	{explain.DetectorPaused, "is being paused", func(f *explain.DetectorFacts) { f.State = "pausing" }},
	{explain.DetectorFailed, "failed: no column", func(f *explain.DetectorFacts) {
		f.State, f.Error = "failed", "no column"
	}},
	{explain.NoAgent, "no CPU agent has begun", func(f *explain.DetectorFacts) {
		f.State, f.Job, f.Counts = "waiting", nil, nil
	}},
	{explain.PoolPaused, "the pool is paused", func(f *explain.DetectorFacts) {
		f.State, f.Job = "waiting", &explain.Reason{Cause: explain.PoolPaused, Sentence: "the pool is paused"}
	}},
	{explain.RetryBackoff, "the last attempt: disk full", func(f *explain.DetectorFacts) {
		f.State, f.Error, f.Job = "waiting", "disk full", &explain.Reason{Cause: explain.Poisoned}
	}},
	{explain.LeaseOfDead, "its worker is gone", func(f *explain.DetectorFacts) {
		f.Job = &explain.Reason{Cause: explain.LeaseOfDead, Sentence: "its worker is gone"}
	}},
	{explain.Running, "has not reported yet", func(f *explain.DetectorFacts) { f.Counts = nil }},
	{explain.SourceAway, "cannot be read: source p: refused", func(f *explain.DetectorFacts) {
		f.Counts.Unreachable = "source p: refused"
	}},
	{explain.NoGPUAgent, "no GPU agent is connected", func(f *explain.DetectorFacts) {
		f.Counts.Pending, f.Counts.Waiting = 5, "no GPU agent answers"
		f.Swarm = &explain.Reason{Cause: explain.NoGPUAgent, Sentence: "no GPU agent is connected"}
	}},
	{explain.Unserved, "no GPU agent answers", func(f *explain.DetectorFacts) {
		f.Counts.Pending, f.Counts.Waiting, f.Swarm = 5, "no GPU agent answers", nil
	}},
	{explain.SinkAway, "5 rows without a decision", func(f *explain.DetectorFacts) { f.Counts.Pending = 5 }},
	{explain.Serving, "5 rows without a decision", func(f *explain.DetectorFacts) {
		f.Counts.Pending, f.Counts.LastDecision = 5, f.Now
	}},
	{explain.RowsRejected, "the last rejected row: p: row 7: bad", func(f *explain.DetectorFacts) {
		f.Counts.Rows, f.Counts.Decisions = 0, 0
	}},
}
