package doctor

import (
	"fmt"
	"time"
)

// DetectorFacts are what is known about a detector that lasts, and the cluster around it.
type DetectorFacts struct {
	Name string
	Now  time.Time
	// Found reports whether there is a detector of the name. State is a state of package detectors.
	Found bool
	State string
	Error string // of the last job, or why it waits
	// Job is the reason of its job; nil if it has none. Swarm is the reason of its swarm; nil if it
	// was not asked.
	Job, Swarm *Reason
	Counts     *DetectorCounts // as of the last report of its job; nil: there is none
	Servers    ServerFacts
}

// DetectorCounts are the numbers that the job of a detector reports.
type DetectorCounts struct {
	Rows, Rejected, Pending, Decisions uint64
	Rate                               float64 // rows per second
	LastDecision                       time.Time
	Waiting                            string // for what the job waits
	Unreachable                        string // the source that cannot be read, with its error
	LastReject                         string
}

// The states of a detector.
const (
	detectorRunning = "running"
	detectorPaused  = "paused"
	detectorPausing = "pausing"
	detectorFailed  = "failed"
)

// DetectorReason returns why a detector does not progress. The first cause in the order of this
// function holds: the servers, what an operator set, its last job, its sources, its swarm, its
// rows.
func DetectorReason(f DetectorFacts) Reason {
	if r, ok := f.Servers.trouble("EXO_JOBS_CPU"); ok {
		return r
	}
	if !f.Found {
		return Reason{
			Cause: NoDetector, Stuck: true, Sentence: fmt.Sprintf("there is no detector %s", f.Name),
			Cure: "exoswarm detect list shows those there are",
		}
	}
	evidence := []string{}
	if f.Error != "" {
		evidence = append(evidence, "the last attempt: "+f.Error)
	}
	switch f.State {
	case detectorPaused:
		return Reason{
			Cause: DetectorPaused, Stuck: true, Sentence: "the detector is paused", Evidence: evidence,
			Cure: "exoswarm detect resume " + f.Name,
		}
	case detectorPausing:
		return Reason{
			Cause: DetectorPaused, Sentence: "the detector is being paused: it finishes what it has read",
			Evidence: evidence, Cure: "none needed",
		}
	case detectorFailed:
		return Reason{
			Cause: DetectorFailed, Stuck: true,
			Sentence: "the detector failed: " + f.Error,
			Cure: "correct the cause, and exoswarm detect resume " + f.Name + "; another specification needs " +
				"exoswarm detect delete " + f.Name + " and create",
		}
	}
	if f.State != detectorRunning {
		return f.waiting(evidence)
	}
	if f.Job != nil && f.Job.Cause != Running && f.Job.Cause != Unknown {
		return *f.Job
	}
	if f.Counts == nil {
		return Reason{
			Cause: Running, Sentence: "an agent has begun with the detector, and has not reported yet",
			Evidence: evidence, Cure: "none needed; exoswarm detect logs " + f.Name,
		}
	}
	return f.reading()
}

// waiting is for a detector without an agent.
func (f DetectorFacts) waiting(evidence []string) Reason {
	switch {
	case f.Job != nil && f.Job.Cause != Done && f.Job.Cause != Unknown && f.Job.Cause != Poisoned:
		return *f.Job
	case f.Error != "":
		return Reason{
			Cause: RetryBackoff, Sentence: "the last job of the detector failed, and the next one begins within 30 s",
			Evidence: evidence, Cure: "exoswarm detect logs " + f.Name,
		}
	}
	return Reason{
		Cause: NoAgent, Sentence: "no CPU agent has begun with the detector", Evidence: evidence,
		Cure: "if this lasts for more than ten seconds, start one: cpuagent --nats URL",
	}
}

// reading is for a detector whose agent reports.
func (f DetectorFacts) reading() Reason {
	c := f.Counts
	evidence := []string{fmt.Sprintf("%d rows read, %d rejected, %d decisions, %d rows without a decision; %.1f rows/s",
		c.Rows, c.Rejected, c.Decisions, c.Pending, c.Rate)}
	if !c.LastDecision.IsZero() {
		evidence = append(evidence, fmt.Sprintf("the last decision was %v ago",
			max(0, f.Now.Sub(c.LastDecision)).Round(time.Second)))
	}
	if c.LastReject != "" {
		evidence = append(evidence, "the last rejected row: "+c.LastReject)
	}
	switch {
	case c.Unreachable != "":
		return Reason{
			Cause: SourceAway, Sentence: "a source of the detector cannot be read: " + c.Unreachable,
			Evidence: evidence, Cure: "repair the source; the detector tries again every 30 s at least",
		}
	case f.Swarm != nil && f.Swarm.Cause != Serving && f.Swarm.Cause != Idle && c.Pending > 0:
		r := *f.Swarm
		r.Evidence = append(evidence, r.Evidence...)
		return r
	case c.Waiting != "":
		return Reason{
			Cause: Unserved, Stuck: true, Sentence: "the detector waits: " + c.Waiting, Evidence: evidence,
			Cure: "start a GPU agent: gpuagent --nats URL --data-dir DIR",
		}
	case c.Pending > 0 && f.Now.Sub(c.LastDecision) > sinkPatience && (f.Swarm == nil || f.Swarm.Cause == Idle):
		return Reason{
			Cause: SinkAway, Sentence: "a sink of the detector does not take decisions", Evidence: evidence,
			Cure: "exoswarm detect logs " + f.Name + " names the sink; the detector continues when it is back",
		}
	case c.Rows == 0 && c.Rejected > 0:
		return Reason{
			Cause: RowsRejected, Stuck: true, Sentence: "every row of the detector is rejected", Evidence: evidence,
			Cure: "correct the source, or delete the detector and create it with columns that the source has",
		}
	}
	return Reason{
		Cause: Serving, Sentence: "the detector reads its sources", Evidence: evidence,
		Cure: "none needed; without rows, see that the source has new ones",
	}
}

// sinkPatience is how long rows wait for their sinks before that is a cause.
const sinkPatience = 10 * time.Second
