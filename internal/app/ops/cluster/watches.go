package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Watch is a detector, or a run over files, that decides about rows.
type Watch struct {
	Name     string   `json:"name"` // of the detector or of the swarm of the run
	Detector bool     `json:"detector,omitempty"`
	Sources  []string `json:"sources,omitempty"` // first names of what it reads
	Swarm    string   `json:"swarm"`             // id
	Job      string   `json:"job,omitempty"`
	Worker   string   `json:"worker,omitempty"`
	State    string   `json:"state"` // see the constants
	// Why says what it waits for and what to do, or why it failed. Since is when that began, or when
	// the attempt did.
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Clock is the timestamp of its last decided row, and Rate its decisions per second, as seen by
	// this process.
	Clock     string  `json:"clock,omitempty"`
	Rate      float64 `json:"rate"`
	Decisions uint64  `json:"decisions"`
	Pending   uint64  `json:"pending,omitempty"`
	Incidents int     `json:"incidents"` // in State.Incidents
	// LatencyP50 and LatencyP99 are milliseconds from a row to its decision; 0 of runs.
	LatencyP50 float64 `json:"latency_p50_ms,omitempty"`
	LatencyP99 float64 `json:"latency_p99_ms,omitempty"`
}

// States of watches.
const (
	WatchRuns   = "running"
	WatchWaits  = "waiting" // for an agent, a source or a receiver: Why says it
	WatchPaused = "paused"
	WatchFailed = "failed"
	WatchDone   = "done" // a run that is over
)

// Incident is an incident of a watch, with the shard that decides about its entity.
type Incident struct {
	explain.Current
	Watch string `json:"watch"`
	Swarm string `json:"swarm"` // id
	Shard int    `json:"shard"`
}

const (
	mostIncidents = 100 // in a state
	keptIncidents = 1000
	// stillWaits is how long rows wait for decisions before their watch waits for somebody.
	stillWaits = 3 * time.Second
	smooth     = 0.2 // of a new value in a rate
	// overKept is how long a run that is over is listed.
	overKept = time.Hour
	// asleepEvery is the time between two questions about detectors without an agent.
	asleepEvery = 2 * time.Second
)

// progress has the members that are shown of cpuagents.DetectorProgress and of the progress of a
// run, and kindDetector is cpuagents.KindDetector. Dashboards do not link the sources and sinks of
// the CPU agent. TestProgress compares both.
type progress struct {
	Rows         uint64         `json:"rows"`
	Observations uint64         `json:"observations"` // of a run, in place of Rows
	Decisions    uint64         `json:"decisions"`
	Late         uint64         `json:"dropped_late"`
	Duplicates   uint64         `json:"dropped_duplicate"`
	LatencyP50   float64        `json:"latency_p50_ms"`
	LatencyP99   float64        `json:"latency_p99_ms"`
	Unreachable  string         `json:"unreachable"`
	Waiting      string         `json:"waiting"`
	Found        *explain.Found `json:"found"`
}

const kindDetector = "detector"

// valid returns the number of rows that get a decision.
func (p *progress) valid() uint64 {
	read := p.Rows + p.Observations
	return read - min(read, p.Late+p.Duplicates)
}

type incidentKey struct {
	swarm, begin string
	group        uint32
}

// watching is what a poller remembers of watches and incidents.
type watching struct {
	all       map[string]*watched // by job
	schedules []jobs.ScheduleState
	asked     time.Time // when the detectors without an agent were asked
	incidents []Incident
	known     map[incidentKey]int // place in incidents
}

type watched struct {
	Watch
	at      time.Time // of the last look
	changed time.Time // when the decisions became more
}

// watches fills in the watches and the incidents of a state whose swarms are filled in.
func (o *Poller) watches(ctx context.Context, s *State, now time.Time) error {
	w := &o.watching
	if w.all == nil {
		w.all, w.known = map[string]*watched{}, map[incidentKey]int{}
	}
	running, err := o.conn.Queue.Running(ctx, jobs.PoolCPU, "")
	if err != nil {
		return err
	}
	if err := o.detectors(ctx, s, running, now); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, r := range running {
		if !w.watches(r) {
			continue
		}
		var p progress
		if json.Unmarshal(r.Progress, &p) != nil && len(r.Progress) > 0 {
			continue
		}
		there[r.JobID] = true
		w.look(s, r, p, now)
	}
	for id, one := range w.all {
		switch {
		case there[id] || one.Detector && one.Job == "":
		case one.Detector: // its job is over or with nobody: see detectors
			delete(w.all, id)
			w.close(one.Swarm, now)
		case one.State != WatchDone:
			// A job that moves to another agent is with nobody for a moment.
			if now.Sub(one.at) > stillWaits {
				w.over(ctx, o, one, now)
			}
		case now.Sub(one.Since) > overKept:
			delete(w.all, id)
		}
	}
	w.fill(s)
	return nil
}

// watches reports whether a running job decides about rows: it says what it has found, or is the
// job of a detector.
func (w *watching) watches(r jobs.Running) bool {
	return strings.Contains(string(r.Progress), `"found":`) || w.schedule(r.JobID) != nil
}

// schedule returns the detector of a job; nil: it is of none.
func (w *watching) schedule(job string) *jobs.ScheduleState {
	for i := range w.schedules {
		if strings.HasPrefix(job, w.schedules[i].Name+"-r") {
			return &w.schedules[i]
		}
	}
	return nil
}

// look takes the progress of a running job.
func (w *watching) look(s *State, r jobs.Running, p progress, now time.Time) {
	one := w.all[r.JobID]
	if one == nil {
		one = &watched{changed: now, at: now}
		one.Job, one.Name = r.JobID, r.JobID
		if d := w.schedule(r.JobID); d != nil {
			one.Detector, one.Name, one.Swarm = true, d.Name, d.Name
			delete(w.all, d.Name)
		}
		w.all[r.JobID] = one
	} else if took := now.Sub(one.at).Seconds(); took > 0 {
		// Progress comes about once a second, so single values jump.
		one.Rate += smooth * (float64(p.Decisions-min(one.Decisions, p.Decisions))/took - one.Rate)
		if one.Rate < 0.01 {
			one.Rate = 0
		}
	}
	if p.Decisions != one.Decisions || p.valid() == p.Decisions {
		one.changed = now
	}
	one.at, one.Worker, one.Decisions = now, r.Worker, p.Decisions
	one.LatencyP50, one.LatencyP99 = p.LatencyP50, p.LatencyP99
	one.Pending = p.valid() - min(p.valid(), p.Decisions)
	if p.Found != nil {
		one.Name, one.Swarm, one.Sources, one.Clock = p.Found.Name, p.Found.Swarm, p.Found.Sources, p.Found.Clock
		w.found(s, one, p.Found.Incidents)
	}
	one.State, one.Why, one.Since = WatchRuns, "", r.Since
	switch {
	case p.Unreachable != "":
		one.wait(p.Unreachable+": repair the source", one.changed)
	case one.Pending > 0 && now.Sub(one.changed) > stillWaits:
		one.wait(blocker(s, one.Swarm), one.changed)
	case p.Waiting != "":
		one.wait(p.Waiting, one.changed)
	}
}

func (one *watched) wait(why string, since time.Time) {
	one.State, one.Why, one.Since = WatchWaits, why, since
}

// blocker says what the rows of a swarm wait for.
func blocker(s *State, id string) string {
	i := slices.IndexFunc(s.Swarms, func(sw Swarm) bool { return sw.ID == id })
	if i < 0 {
		return "its swarm is gone"
	}
	slow := ""
	for _, sh := range s.Swarms[i].Shards {
		switch {
		case sh.Holder == "" && sh.LostHolder != "":
			return fmt.Sprintf("GPU agent %s is gone: start it, or another one", sh.LostHolder)
		case sh.Holder == "":
			return "no GPU agent serves it: start one (gpuagent --nats URL)"
		case sh.State == StateReplaying:
			return fmt.Sprintf("GPU agent %s replays its log", sh.Holder)
		case sh.Leaderless != "":
			return "log " + sh.Leaderless + " has no leader: start the NATS servers that are missing"
		}
		if sh.Entries > sh.Answered {
			slow = sh.Holder
		}
	}
	if slow != "" {
		return fmt.Sprintf("GPU agent %s does not answer: see its page", slow)
	}
	return "a receiver of its decisions does not take them: see the log of its job"
}

// found adds the incidents of a watch, and changes the known ones.
func (w *watching) found(s *State, one *watched, all []explain.Current) {
	for i := len(all) - 1; i >= 0; i-- { // oldest first
		in := Incident{Current: all[i], Watch: one.Name, Swarm: one.Swarm, Shard: shardOf(s, one.Swarm, all[i].Group)}
		key := incidentKey{in.Swarm, in.Begin, in.Group}
		if at, ok := w.known[key]; ok {
			w.incidents[at] = in
			continue
		}
		w.known[key] = len(w.incidents)
		w.incidents = append(w.incidents, in)
	}
	if over := len(w.incidents) - keptIncidents; over > 0 {
		w.incidents = slices.Delete(w.incidents, 0, over)
		clear(w.known)
		for i, in := range w.incidents {
			w.known[incidentKey{in.Swarm, in.Begin, in.Group}] = i
		}
	}
}

func shardOf(s *State, id string, group uint32) int {
	for _, sw := range s.Swarms {
		for _, sh := range sw.Shards {
			if sw.ID == id && sh.First <= int(group) && int(group) < sh.End {
				return sh.Shard
			}
		}
	}
	return 0
}

// close ends the incidents of a swarm whose watch is over.
func (w *watching) close(id string, now time.Time) {
	for i := range w.incidents {
		if w.incidents[i].Swarm == id && w.incidents[i].Ended.IsZero() {
			w.incidents[i].Ended = now.UTC()
		}
	}
}

// over notes the end of a run. A run without a result is still in the queue.
func (w *watching) over(ctx context.Context, o *Poller, one *watched, now time.Time) {
	r, err := o.conn.Results.Lookup(ctx, one.Job)
	if err != nil {
		one.wait("no CPU agent has its job: start one (cpuagent --nats URL)", one.at)
		one.Rate = 0
		return
	}
	one.State, one.Why, one.Since, one.Rate, one.Pending = WatchDone, "", r.Finished, 0, 0
	if r.Status != jobs.Done && r.Error != nil {
		one.State, one.Why = WatchFailed, r.Error.Message
	}
	var p progress
	if json.Unmarshal(r.Output, &p) == nil && p.Decisions > 0 {
		one.Decisions, one.LatencyP50, one.LatencyP99 = p.Decisions, p.LatencyP50, p.LatencyP99
	}
	w.close(one.Swarm, now)
}

// detectors adds the detectors whose job no agent has.
func (o *Poller) detectors(ctx context.Context, s *State, running []jobs.Running, now time.Time) (err error) {
	w := &o.watching
	asleep := slices.ContainsFunc(w.schedules, func(d jobs.ScheduleState) bool { return !runs(running, d.Name) })
	if !o.changed(s, "KV_"+wire.CronBucket) && (!asleep || now.Sub(w.asked) < asleepEvery) {
		return nil
	}
	all, err := o.conn.Schedules.Schedules(ctx)
	if err != nil {
		return err
	}
	w.schedules, w.asked = w.schedules[:0], now
	for _, d := range all {
		if d.Cron == jobs.Always && d.Job.Kind == kindDetector {
			w.schedules = append(w.schedules, d)
		}
	}
	for id, one := range w.all { // a detector that was deleted
		if one.Detector && one.Job == "" && w.schedule(id+"-r") == nil {
			delete(w.all, id)
		}
	}
	for _, d := range w.schedules {
		if runs(running, d.Name) {
			continue
		}
		one := w.all[d.Name]
		if one == nil {
			one = &watched{changed: now}
			one.Name, one.Swarm, one.Detector = d.Name, d.Name, true
			w.all[d.Name] = one
		}
		before := one.State
		one.State, one.Why = WatchWaits, ""
		if now.Sub(one.changed) > stillWaits {
			one.Why = "no CPU agent has its job: start one (cpuagent --nats URL)"
		}
		if d.Error != "" {
			one.State, one.Why = WatchFailed, d.Error
		} else if d.LastJob != "" {
			r, err := o.conn.Results.Lookup(ctx, d.LastJob)
			if err == nil && jobs.EndsSchedule(r) && !d.From.After(r.Finished) {
				one.State, one.Why, one.changed = WatchFailed, "its job ended", r.Finished
				if r.Error != nil {
					one.Why = r.Error.Message
				}
			}
		}
		if d.Paused {
			one.State, one.Why = WatchPaused, ""
		}
		if before != one.State && one.State != WatchFailed {
			one.changed = now
		}
		one.Since = one.changed.UTC()
	}
	return nil
}

// runs reports whether a job of a detector runs.
func runs(running []jobs.Running, detector string) bool {
	return slices.ContainsFunc(running, func(r jobs.Running) bool {
		return strings.HasPrefix(r.JobID, detector+"-r")
	})
}

// fill copies what is known into a state: watches by name, and incidents with the newest first.
func (w *watching) fill(s *State) {
	s.Watches, s.Incidents = []Watch{}, []Incident{}
	count := map[string]int{}
	for i := len(w.incidents) - 1; i >= 0; i-- {
		count[w.incidents[i].Swarm]++
		s.Incidents = append(s.Incidents, w.incidents[i])
	}
	slices.SortStableFunc(s.Incidents, func(a, b Incident) int { return b.Began.Compare(a.Began) })
	s.Incidents = s.Incidents[:min(len(s.Incidents), mostIncidents)]
	for _, one := range w.all {
		v := one.Watch
		v.Incidents = count[v.Swarm]
		s.Watches = append(s.Watches, v)
	}
	slices.SortFunc(s.Watches, func(a, b Watch) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Job, b.Job))
	})
	n := s.Numbers
	for _, v := range s.Watches {
		n[DecisionRate] += v.Rate
		if v.LatencyP99 > 0 {
			n[LatencyP50], n[LatencyP99] = max(n[LatencyP50], v.LatencyP50/1000), max(n[LatencyP99], v.LatencyP99/1000)
		}
	}
	n[DecisionRate] += 0
	n[IncidentsOpen] = 0
	for _, in := range s.Incidents {
		if in.Ended.IsZero() {
			n[IncidentsOpen]++
		}
	}
}

// Title returns the name of a swarm that tells it from others: of a run also what it reads.
func (s *State) Title(sw Swarm) string {
	for _, v := range s.Watches {
		if v.Swarm == sw.ID && !v.Detector && len(v.Sources) > 0 {
			return sw.Name + ": " + strings.Join(v.Sources, ", ")
		}
	}
	return sw.Name
}

// features returns the names of the features of a swarm, in the order of the values of its
// decisions.
func (s Swarm) features() []string {
	var spec swarm.Spec
	if json.Unmarshal(s.Spec, &spec) != nil {
		return nil
	}
	return spec.Features
}
