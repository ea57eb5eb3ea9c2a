package cluster

import (
	"math"
	"time"
)

// Series names the series of State.Numbers and of the history. Rates are per second.
// The names are part of the HTTP API.
const (
	JobsWaiting     = "jobs_waiting"
	JobsRunning     = "jobs_running"
	JobsEnded       = "jobs_ended_per_second"
	DeadLetters     = "dead_letters"
	AgentCount      = "agents"
	ShardCount      = "shards"
	ShardsUnserved  = "shards_unserved"
	EntryRate       = "entries_per_second"
	EntriesWaiting  = "entries_waiting"
	ObservationRate = "observations_per_second"
	StoreBytes      = "store_bytes"
	DeviceBusy      = "device_busy" // the mean over GPU agents, 0 to 1
	PageMoveRate    = "page_moves_per_second"
	DecisionRate    = "decisions_per_second"
	LatencyP50      = "latency_p50" // seconds from a row to its decision, of the slowest detector
	LatencyP99      = "latency_p99"
	IncidentsOpen   = "incidents_open"
)

// SeriesNames returns the names of all series, in the order of the documents.
func SeriesNames() []string {
	return []string{
		JobsWaiting, JobsRunning, JobsEnded, DeadLetters, AgentCount, ShardCount, ShardsUnserved, EntryRate,
		EntriesWaiting, ObservationRate, StoreBytes, DeviceBusy, PageMoveRate,
		DecisionRate, LatencyP50, LatencyP99, IncidentsOpen,
	}
}

// History is a part of the history. At and each series have the same length and are sorted by time.
type History struct {
	Step time.Duration `json:"step_ns"`
	// At are Unix seconds, one a step; a step without a poll is left out.
	At []int64 `json:"at"`
	// Series are the values at these times; null: not known then.
	Series map[string][]*float64 `json:"series"`
}

// The rings of the history: 15 minutes by second, and 24 hours by minute. They take 8 bytes for
// each series and step, which is about 250 KiB.
const (
	fineSteps, coarseSteps = 15 * 60, 24 * 60
	fineStep, coarseStep   = time.Second, time.Minute
)

// history keeps the series in two rings: one value a second, and the mean of a minute. The watcher
// guards it with its mutex. Nothing is stored: a new process has an empty history.
type history struct {
	fine, coarse ring
	minute       time.Time // of sums
	// sums and counts cover the values since minute; the mean of a minute is written when the next
	// minute begins.
	sums, counts map[string]float64
}

func newHistory() *history {
	return &history{
		fine: newRing(fineStep, fineSteps), coarse: newRing(coarseStep, coarseSteps),
		sums: map[string]float64{}, counts: map[string]float64{},
	}
}

// add takes the numbers of a poll. A missing name is unknown at that time. Times do not go
// backwards, except by a change of the clock, after which a minute may occur twice.
func (h *history) add(at time.Time, numbers map[string]float64) {
	if m := at.Truncate(coarseStep); !m.Equal(h.minute) {
		if len(h.counts) > 0 {
			means := map[string]float64{}
			for n, sum := range h.sums {
				means[n] = sum / h.counts[n]
			}
			h.coarse.add(h.minute, means)
		}
		h.minute = m
		clear(h.sums)
		clear(h.counts)
	}
	for n, v := range numbers {
		h.sums[n] += v
		h.counts[n]++
	}
	h.fine.add(at.Truncate(fineStep), numbers)
}

// since returns the series from the finer ring if it reaches back to from, otherwise from the
// coarse ring. The coarse ring lacks the current minute.
func (h *history) since(names []string, from time.Time) History {
	if time.Since(from) <= fineSteps*fineStep {
		return h.fine.since(names, from)
	}
	return h.coarse.since(names, from)
}

// ring keeps the last values of each series. NaN marks a value that is not known at a time.
type ring struct {
	step   time.Duration
	at     []int64 // Unix seconds; 0: not used yet
	values map[string][]float64
	// next is the place of the oldest value, which the next step overwrites.
	next int
}

// newRing allocates all series at once, so add never does.
func newRing(step time.Duration, n int) ring {
	r := ring{step: step, at: make([]int64, n), values: map[string][]float64{}}
	for _, name := range SeriesNames() {
		r.values[name] = make([]float64, n)
	}
	return r
}

// add appends one step. Series that numbers lacks get NaN; names that are no series are ignored.
func (r *ring) add(at time.Time, numbers map[string]float64) {
	r.at[r.next] = at.Unix()
	for name, values := range r.values {
		v, ok := numbers[name]
		if !ok {
			v = math.NaN()
		}
		values[r.next] = v
	}
	r.next = (r.next + 1) % len(r.at)
}

// since returns the steps from a time on, oldest first. Names that are no series are left out of
// the result. Values are copies.
func (r *ring) since(names []string, from time.Time) History {
	h := History{Step: r.step, At: []int64{}, Series: map[string][]*float64{}}
	for _, n := range names {
		if r.values[n] != nil {
			h.Series[n] = []*float64{}
		}
	}
	for i := range r.at {
		k := (r.next + i) % len(r.at)
		if r.at[k] == 0 || r.at[k] < from.Unix() {
			continue
		}
		h.At = append(h.At, r.at[k])
		for n := range h.Series {
			var v *float64
			if x := r.values[n][k]; !math.IsNaN(x) {
				v = &x
			}
			h.Series[n] = append(h.Series[n], v)
		}
	}
	return h
}
