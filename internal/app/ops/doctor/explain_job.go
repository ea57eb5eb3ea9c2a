package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// JobFacts are what is known about one job and the cluster around it. A nil pointer or slice is a
// fact that is not known.
type JobFacts struct {
	ID  string
	Now time.Time
	// Listed is the job where it is not over, Result where it is, Dead its dead letter.
	Listed *queue.ListedJob
	Result *jobs.Result
	Dead   *jobs.DeadLetter
	Pool   jobs.QueueStats // of its pool
	Agents []jobs.Agent
	Limits []jobs.TenantLimits
	// Running are the jobs of its tenant that run now, in all pools.
	Running int
	// Worker and Attempt come from the last log lines of the job; empty: it has none.
	Worker  string
	Attempt int
	// Ended is the end of the newest attempt that is known to have begun; nil: no worker has stored an
	// end, or a later attempt has begun.
	Ended *AttemptEnd
	// Silent are the agents of the pool that are registered and do not answer what they run.
	Silent  []string
	Servers ServerFacts
}

// AttemptEnd is the end of an attempt without a result, as its worker has stored it.
type AttemptEnd struct {
	Worker  string
	Attempt int
	At      time.Time     // when it ended
	Pause   time.Duration // until the job may be handed out again
	Error   string        // why it ended
}

// ServerFacts are what is known of the NATS servers.
type ServerFacts struct {
	Error  error // why they could not be asked
	Report *telemetry.ServerReport
}

// JobReason returns why a job does not progress. The first cause in the order of this function
// holds: a state of the job itself, then the servers, then what an operator set, then the agents.
func JobReason(f JobFacts) Reason {
	switch {
	case f.Result != nil:
		return ended(f)
	case f.Dead != nil:
		return poisoned(f)
	}
	streams := []string{wire.JobStream(f.Pool.Pool)}
	if f.Listed != nil {
		streams = append(streams, wire.SourceOf(f.Listed.Job).At(f.Listed.Level()).Stream())
	}
	if r, ok := f.Servers.trouble(streams...); ok && (f.Listed == nil ||
		f.Listed.State != queue.StateRunning) {
		return r
	}
	if f.Listed == nil {
		return Reason{
			Cause: Unknown, Stuck: true,
			Sentence: fmt.Sprintf("nothing is known of job %s", f.ID),
			Evidence: []string{"it is neither queued nor over, and there is no dead letter of this id"},
			Cure:     "check the id (exoswarm job list --all); a result is kept for its result_ttl_s, a day by default",
		}
	}
	j := f.Listed
	switch j.State {
	case queue.StateWaiting:
		return Reason{
			Cause:    Parents,
			Sentence: fmt.Sprintf("the job waits for %s", several(len(j.Waits), "other job", "other jobs")),
			Evidence: []string{"not over yet: " + strings.Join(j.Waits, ", ")},
			Cure:     "exoswarm job explain " + first(j.Waits) + ", or cancel that job",
		}
	case queue.StateDelayed:
		return Reason{
			Cause: Delayed,
			Sentence: fmt.Sprintf("the job starts at %s, in %v", j.NotBefore.Local().Format(time.DateTime),
				j.NotBefore.Sub(f.Now).Round(time.Second)),
			Evidence: []string{"not_before is " + j.NotBefore.UTC().Format(time.RFC3339)},
			Cure:     "exoswarm job cancel " + j.ID + ", and submit it without a delay",
		}
	case queue.StateRunning:
		return running(f)
	}
	return queued(f)
}

func ended(f JobFacts) Reason {
	r := f.Result
	at := fmt.Sprintf("attempt %d on %s ended at %s", r.Attempts, r.Worker, r.Finished.UTC().Format(time.RFC3339))
	switch {
	case r.Status == jobs.Done:
		return Reason{Cause: Done, Sentence: "the job is done", Evidence: []string{at}, Cure: "exoswarm job get " +
			f.ID}
	case r.Error == nil:
		return Reason{Cause: Poisoned, Stuck: true, Sentence: "the job failed", Evidence: []string{at}}
	}
	switch r.Error.Code {
	case jobs.CodeCanceled:
		return Reason{
			Cause: Cancelled, Stuck: true, Sentence: "the job was cancelled", Evidence: []string{r.Error.Message, at},
			Cure: "submit it again",
		}
	case jobs.CodeDeadline:
		return Reason{
			Cause: Expired, Stuck: true, Sentence: "the deadline of the job has passed",
			Evidence: []string{r.Error.Message, at}, Cure: "submit it again with a later deadline",
		}
	case jobs.CodeParent, jobs.CodeSkipped:
		return Reason{
			Cause: Skipped, Stuck: true, Sentence: "a job that it waited for was not done",
			Evidence: []string{r.Error.Message}, Cure: "repair and retry that job, and submit this one again",
		}
	}
	return poisoned(f)
}

func poisoned(f JobFacts) Reason {
	message, attempts, worker := "", 0, ""
	switch {
	case f.Dead != nil:
		attempts, worker = f.Dead.Attempts, f.Dead.Worker
		if f.Dead.Reason != nil {
			message = string(f.Dead.Reason.Code) + ": " + f.Dead.Reason.Message
		}
	case f.Result.Error != nil:
		attempts, worker = f.Result.Attempts, f.Result.Worker
		message = string(f.Result.Error.Code) + ": " + f.Result.Error.Message
	}
	return Reason{
		Cause: Poisoned, Stuck: true,
		Sentence: "the job failed for good: " + message,
		Evidence: []string{fmt.Sprintf("%s, the last one on %s", several(attempts, "attempt", "attempts"), worker)},
		Cure:     fmt.Sprintf("repair the cause, then exoswarm job retry %s (exoswarm job logs %[1]s)", f.ID),
	}
}

func running(f JobFacts) Reason {
	r := f.Listed.Running
	out := Reason{
		Cause: Running, Sentence: fmt.Sprintf("the job is running on %s, attempt %d, since %s", r.Worker, r.Attempt,
			r.Since.Local().Format(time.TimeOnly)),
	}
	if len(r.Progress) > 0 {
		out.Evidence = append(out.Evidence, "its last progress: "+withoutFound(r.Progress))
	}
	return out
}

// withoutFound returns the progress of a job without the incidents, which pages show.
func withoutFound(progress json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(progress, &all) != nil || all["found"] == nil {
		return string(progress)
	}
	delete(all, "found")
	text, err := json.Marshal(all)
	if err != nil {
		return string(progress)
	}
	return string(text)
}

// queued is for a job that no worker has now.
func queued(f JobFacts) Reason {
	j := f.Listed
	source := source(f.Pool, j.Job)
	switch {
	case f.Pool.Paused:
		return Reason{
			Cause: PoolPaused, Stuck: true, Sentence: fmt.Sprintf("pool %s is paused", j.Pool),
			Evidence: []string{fmt.Sprintf("%d jobs of the pool wait or run", f.Pool.Jobs)},
			Cure:     fmt.Sprintf("exoswarm queue resume %s", j.Pool),
		}
	case source.Paused:
		return Reason{
			Cause: KindPaused, Stuck: true, Sentence: fmt.Sprintf("kind %s of pool %s is paused", j.Kind, j.Pool),
			Evidence: []string{fmt.Sprintf("%d jobs of this kind, lane and tenant wait", source.Waiting)},
			Cure:     fmt.Sprintf("exoswarm queue resume %s --kind %s", j.Pool, j.Kind),
		}
	}
	if j.State == queue.StateRetrying {
		return retrying(f)
	}
	of := agentsOf(f.Agents, j.Pool, j.Kind)
	if len(of) == 0 {
		return Reason{
			Cause: NoAgent, Stuck: true, Sentence: fmt.Sprintf("no agent of kind %s is connected", j.Kind),
			Evidence: []string{kinds(f.Agents, j.Pool)},
			Cure: fmt.Sprintf("start an agent that handles kind %s of pool %s, or submit another kind", j.Kind,
				j.Pool),
		}
	}
	if r, ok := limited(f); ok {
		return r
	}
	return busy(f, of, source)
}

// nextGrace is how long after its pause a job may still wait for the server and for a worker.
const nextGrace = 2 * time.Second

// retrying is for a job that a worker had, and that no worker says it runs. Workers store the end
// of each attempt that ends without a result. So the job waits for its next attempt, or it is due
// and no agent is free, or its worker is gone.
func retrying(f JobFacts) Reason {
	j := f.Listed
	of := agentsOf(f.Agents, j.Pool, j.Kind)
	end := f.Ended
	if end != nil && f.Now.Before(end.At.Add(end.Pause+nextGrace)) {
		return backoff(f)
	}
	if len(of) == 0 {
		evidence := []string{kinds(f.Agents, j.Pool)}
		if end == nil {
			evidence = append(evidence, "a worker had the job, and is gone")
		}
		return Reason{
			Cause: NoAgent, Stuck: true, Sentence: fmt.Sprintf("no agent of kind %s is connected", j.Kind),
			Evidence: evidence,
			Cure:     fmt.Sprintf("start an agent that handles kind %s of pool %s", j.Kind, j.Pool),
		}
	}
	if end != nil {
		// It is due, and free agents take a due job at once.
		if r, ok := limited(f); ok {
			return r
		}
		if r := busy(f, of, source(f.Pool, j.Job)); r.Cause != QueuedBehind {
			r.Evidence = append(r.Evidence, fmt.Sprintf("attempt %d ended, and the next one is due", end.Attempt))
			return r
		}
	}
	return leaseOfDead(f)
}

// backoff is for a job whose last attempt ended, and that waits for the next one.
func backoff(f JobFacts) Reason {
	j, end := f.Listed, f.Ended
	next := end.At.Add(end.Pause)
	out := Reason{
		Cause:    RetryBackoff,
		Sentence: "an attempt at the job ended without a result, and the next attempt waits",
		Evidence: []string{fmt.Sprintf("attempt %d on %s ended at %s: %s", end.Attempt, end.Worker,
			end.At.UTC().Format(time.RFC3339), end.Error)},
		Cure: fmt.Sprintf("none needed: it is tried up to %d times, after pauses that double from 1 s "+
			"(exoswarm job logs %s shows the attempts)", j.WithDefaults().MaxAttempts, j.ID),
	}
	if left := next.Sub(f.Now).Round(time.Second); left > 0 {
		out.Evidence = append(out.Evidence, fmt.Sprintf("the next attempt may begin at %s, in %v",
			next.UTC().Format(time.RFC3339), left))
	}
	return out
}

// leaseOfDead is for a job that a worker received and neither runs nor has given back.
func leaseOfDead(f JobFacts) Reason {
	out := Reason{
		Cause:    LeaseOfDead,
		Sentence: "the worker of the job is gone, and its lease on the job has not ended",
		Evidence: []string{"a worker received the job; no worker runs it, and none has stored the end of its attempt"},
		Cure: "none needed: another worker takes the job when the lease ends, 15 s after the worker's last " +
			"sign of life",
	}
	registered := func(name string) bool {
		return slices.ContainsFunc(f.Agents, func(a jobs.Agent) bool { return a.Name == name && a.Lost == nil })
	}
	silent := slices.Contains(f.Silent, f.Worker)
	switch {
	case f.Worker != "" && f.Ended == nil && (silent || !registered(f.Worker)):
		out.Sentence = fmt.Sprintf("worker %s is gone, and its lease on the job has not ended", f.Worker)
		how := "it is not registered any more"
		if silent {
			how = "it does not answer"
		}
		out.Evidence = append(out.Evidence,
			fmt.Sprintf("attempt %d logged its last line on %s; %s", f.Attempt, f.Worker, how))
	case len(f.Silent) > 0:
		out.Evidence = append(out.Evidence, "registered agents that do not answer: "+strings.Join(f.Silent, ", "))
	}
	return out
}

// limited reports whether the tenant's limits hold the job back.
func limited(f JobFacts) (Reason, bool) {
	tenant := f.Listed.WithDefaults().Tenant
	var own, all jobs.Limits
	for _, l := range f.Limits {
		switch l.Tenant {
		case tenant:
			own = l.Limits
		case jobs.EveryTenant:
			all = l.Limits
		}
	}
	l := own.Or(all)
	if l.Concurrency == nil || *l.Concurrency == 0 || f.Running < *l.Concurrency {
		return Reason{}, false
	}
	return Reason{
		Cause: TenantLimit,
		Sentence: fmt.Sprintf("tenant %s runs %d jobs, and may run %d", tenant, f.Running,
			*l.Concurrency),
		Evidence: []string{fmt.Sprintf("its limit of concurrency is %d", *l.Concurrency)},
		Cure: fmt.Sprintf("wait for one of its jobs to end, or exoswarm tenant limit %s --concurrency N",
			tenant),
	}, true
}

// busy is for a job that agents serve and that none has taken yet.
func busy(f JobFacts, of []jobs.Agent, source jobs.SourceStats) Reason {
	j := f.Listed
	var evidence []string
	full, draining, failing := 0, 0, 0
	for _, a := range of {
		state := a.State
		taken, slots := a.Slots()
		switch {
		case a.State == "draining":
			draining++
		case a.State != "serving" && a.State != "full":
			failing++
		case slots > 0 && taken >= slots:
			full++
			state = fmt.Sprintf("runs %d of %d jobs", taken, slots)
		}
		if len(evidence) < 5 {
			evidence = append(evidence, a.Name+": "+state)
		}
	}
	switch len(of) {
	case failing:
		return Reason{
			Cause: AgentTrouble, Stuck: true, Sentence: fmt.Sprintf("no agent of kind %s can work now", j.Kind),
			Evidence: evidence, Cure: "see the state and the log of these agents (exoswarm agent list)",
		}
	case draining, draining + failing:
		return Reason{
			Cause: AgentsDraining, Stuck: true,
			Sentence: fmt.Sprintf("all agents of kind %s drain and take nothing new", j.Kind),
			Evidence: evidence, Cure: "start another agent",
		}
	case full + draining + failing:
		return Reason{
			Cause: AgentsFull, Sentence: fmt.Sprintf("all agents of kind %s are full: all slots are taken", j.Kind),
			Evidence: append(evidence, fmt.Sprintf("%d jobs of this kind, lane and tenant wait", source.Waiting)),
			Cure:     "wait, start more agents, or raise --concurrency (gpuagent: --gpu-jobs)",
		}
	}
	return Reason{
		Cause: QueuedBehind, Sentence: "the job is queued, and agents are free: it starts soon",
		Evidence: append(evidence, fmt.Sprintf("%d jobs of this kind, lane and tenant wait", source.Waiting)),
		Cure:     "if this stays so, see the log of the agents: exoswarm doctor",
	}
}

// source returns the counts of the job's kind, lane, tenant and level. A job whose level is the
// default of the cluster counts there.
func source(s jobs.QueueStats, j jobs.Job) jobs.SourceStats {
	j = j.WithDefaults()
	var found jobs.SourceStats
	for _, c := range s.Sources {
		if c.Kind == j.Kind && c.Lane == j.Lane && c.Tenant == j.Tenant && (c.Level == "" || c.Level == j.Level()) {
			found = c
			if c.Level == j.Level() {
				break
			}
		}
	}
	return found
}

// agentsOf returns the live agents of a pool that handle a kind.
func agentsOf(all []jobs.Agent, p jobs.Pool, kind string) (of []jobs.Agent) {
	for _, a := range all {
		if a.Pool == p && a.Lost == nil && slices.Contains(a.Kinds, kind) {
			of = append(of, a)
		}
	}
	return of
}

// kinds is one sentence about the kinds that the agents of a pool handle.
func kinds(all []jobs.Agent, p jobs.Pool) string {
	seen := map[string]bool{}
	n := 0
	for _, a := range all {
		if a.Pool == p && a.Lost == nil {
			n++
			for _, k := range a.Kinds {
				seen[k] = true
			}
		}
	}
	if len(seen) == 0 {
		return fmt.Sprintf("%s of pool %s, and none handles jobs", several(n, "agent", "agents"), p)
	}
	return fmt.Sprintf("the agents of pool %s handle: %s", p, strings.Join(sorted(seen), ", "))
}
