package cluster

import (
	"fmt"
	"strconv"

	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// Trace is a timeline in the trace event format of Chrome, which chrome://tracing and Perfetto
// read.
type Trace struct {
	Events []TraceEvent      `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"` // of the time that viewers show: ms
	Other  map[string]string `json:"otherData"`
}

// TraceEvent is an event of a trace: a span (phase X), or the name or the place of a process or a
// thread (phase M).
type TraceEvent struct {
	Name     string `json:"name"`
	Category string `json:"cat,omitempty"`
	Phase    string `json:"ph"`
	// Time and Took are in microseconds.
	Time    float64        `json:"ts"`
	Took    float64        `json:"dur"`
	Process int            `json:"pid"`
	Thread  int            `json:"tid"`
	Args    map[string]any `json:"args,omitempty"`
}

// Trace returns the timeline as a trace: a process for each shard, and in it a thread for each
// stage, because stages overlap. Times count from the start of the first span.
func (t *Timeline) Trace() Trace {
	out := Trace{
		Events: []TraceEvent{}, Unit: "ms",
		Other: map[string]string{"agent": t.Agent, "at": t.At.UTC().Format("2006-01-02T15:04:05.000Z07:00")},
	}
	if len(t.Spans) == 0 {
		return out
	}
	begin := t.Spans[0].Begin
	for _, s := range t.Spans {
		begin = min(begin, s.Begin)
	}
	out.Other["begin_ns"] = strconv.FormatInt(begin, 10)
	processes := map[[2]string]int{}
	for _, s := range t.Spans {
		of := [2]string{s.Swarm, strconv.Itoa(s.Shard)}
		if processes[of] == 0 {
			processes[of] = len(processes) + 1
			out.name(t, s, processes[of])
		}
		out.Events = append(out.Events, TraceEvent{
			Name: t.stage(s), Category: "pipeline", Phase: "X", Time: float64(s.Begin-begin) / 1e3,
			Took: float64(s.Took) / 1e3, Process: processes[of], Thread: s.Stage + 1,
			Args: map[string]any{"first_entry": s.First, "last_entry": s.Last, "bytes": s.Bytes},
		})
	}
	return out
}

func (t *Timeline) stage(s telemetry.Span) string {
	if s.Stage < 0 || s.Stage >= len(t.Stages) {
		return fmt.Sprintf("stage %d", s.Stage)
	}
	return t.Stages[s.Stage]
}

// name names the process of the shard of a span, and its threads.
func (c *Trace) name(t *Timeline, s telemetry.Span, process int) {
	swarm := t.Names[s.Swarm]
	if swarm == "" {
		swarm = s.Swarm
	}
	meta := func(what string, thread int, args map[string]any) {
		c.Events = append(c.Events, TraceEvent{Name: what, Phase: "M", Process: process, Thread: thread, Args: args})
	}
	meta("process_name", 0, map[string]any{"name": fmt.Sprintf("%s shard %d on %s", swarm, s.Shard, t.Agent)})
	for i, stage := range t.Stages {
		meta("thread_name", i+1, map[string]any{"name": stage})
		meta("thread_sort_index", i+1, map[string]any{"sort_index": i})
	}
}
