package doctor_test

import (
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
)

// reading is a detector that reads rows, and has decided all of them.
func reading() *doctor.DetectorFacts {
	now := time.Now()
	return &doctor.DetectorFacts{
		Name: "d", Now: now, Found: true, State: "running", Servers: queued().Servers,
		Job:   &doctor.Reason{Cause: doctor.Running},
		Swarm: &doctor.Reason{Cause: doctor.Idle},
		Counts: &doctor.DetectorCounts{
			Rows: 100, Rejected: 3, Decisions: 100, Rate: 2.5, LastDecision: now.Add(-time.Minute),
			LastReject: "p: row 7: bad",
		},
	}
}

var detectorCases = []struct {
	cause doctor.Cause
	says  string
	plant func(f *doctor.DetectorFacts)
}{
	{doctor.Serving, "100 rows read, 3 rejected, 100 decisions, 0 rows without a decision; 2.5 rows/s; the last " +
		"decision was 1m0s ago; the last rejected row: p: row 7: bad", func(*doctor.DetectorFacts) {}},
	{doctor.NoConnection, "", func(f *doctor.DetectorFacts) {
		f.Servers = doctor.ServerFacts{Error: errors.New("away")}
		f.Found = false
	}},
	{doctor.NoDetector, "there is no detector d", func(f *doctor.DetectorFacts) { f.Found = false }},
	{doctor.DetectorPaused, "the detector is paused", func(f *doctor.DetectorFacts) { f.State = "paused" }},
	{doctor.DetectorPaused, "is being paused", func(f *doctor.DetectorFacts) { f.State = "pausing" }},
	{doctor.DetectorFailed, "failed: no column", func(f *doctor.DetectorFacts) {
		f.State, f.Error = "failed", "no column"
	}},
	{doctor.NoAgent, "no CPU agent has begun", func(f *doctor.DetectorFacts) {
		f.State, f.Job, f.Counts = "waiting", nil, nil
	}},
	{doctor.PoolPaused, "the pool is paused", func(f *doctor.DetectorFacts) {
		f.State, f.Job = "waiting", &doctor.Reason{Cause: doctor.PoolPaused, Sentence: "the pool is paused"}
	}},
	{doctor.RetryBackoff, "the last attempt: disk full", func(f *doctor.DetectorFacts) {
		f.State, f.Error, f.Job = "waiting", "disk full", &doctor.Reason{Cause: doctor.Poisoned}
	}},
	{doctor.LeaseOfDead, "its worker is gone", func(f *doctor.DetectorFacts) {
		f.Job = &doctor.Reason{Cause: doctor.LeaseOfDead, Sentence: "its worker is gone"}
	}},
	{doctor.Running, "has not reported yet", func(f *doctor.DetectorFacts) { f.Counts = nil }},
	{doctor.SourceAway, "cannot be read: source p: refused", func(f *doctor.DetectorFacts) {
		f.Counts.Unreachable = "source p: refused"
	}},
	{doctor.NoGPUAgent, "no GPU agent is connected", func(f *doctor.DetectorFacts) {
		f.Counts.Pending, f.Counts.Waiting = 5, "no GPU agent answers"
		f.Swarm = &doctor.Reason{Cause: doctor.NoGPUAgent, Sentence: "no GPU agent is connected"}
	}},
	{doctor.Unserved, "no GPU agent answers", func(f *doctor.DetectorFacts) {
		f.Counts.Pending, f.Counts.Waiting, f.Swarm = 5, "no GPU agent answers", nil
	}},
	{doctor.SinkAway, "5 rows without a decision", func(f *doctor.DetectorFacts) { f.Counts.Pending = 5 }},
	{doctor.Serving, "5 rows without a decision", func(f *doctor.DetectorFacts) {
		f.Counts.Pending, f.Counts.LastDecision = 5, f.Now
	}},
	{doctor.RowsRejected, "the last rejected row: p: row 7: bad", func(f *doctor.DetectorFacts) {
		f.Counts.Rows, f.Counts.Decisions = 0, 0
	}},
}
