package doctor_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// queued is a job that waits for an agent, in a queue that nothing is wrong with.
func queued() *doctor.JobFacts {
	return &doctor.JobFacts{
		ID: "j", Now: time.Now(),
		Listed: &queue.ListedJob{Job: jobs.Job{ID: "j", Pool: jobs.PoolCPU, Kind: "k"}, State: queue.StateQueued},
		Pool: jobs.QueueStats{Pool: jobs.PoolCPU, Sources: []jobs.SourceStats{
			{Kind: "k", Lane: jobs.Normal, Tenant: jobs.DefaultTenant, Waiting: 3},
		}},
		Agents: []jobs.Agent{{Name: "a", Pool: jobs.PoolCPU, Kinds: []string{"k"}, State: "serving", Concurrency: 2}},
		Servers: doctor.ServerFacts{Report: &telemetry.ServerReport{
			Streams: []telemetry.ServerStream{
				{Name: "EXO_JOBS_CPU", Replicas: 3}, {Name: "KV_EXO_LEASES", Replicas: 3},
			},
		}},
	}
}

// onGPU makes the job a job of pool gpu, whose agent has many shards and runs a number of two jobs.
func onGPU(f *doctor.JobFacts, running int) {
	f.Listed.Pool, f.Pool.Pool = jobs.PoolGPU, jobs.PoolGPU
	f.Agents[0].Pool, f.Agents[0].Concurrency, f.Agents[0].Running = jobs.PoolGPU, 0, 30
	f.Agents[0].JobSlots, f.Agents[0].JobsRunning = 2, running
}

// served is a swarm of two shards that are served and have nothing to do.
func served() *doctor.SwarmFacts {
	return &doctor.SwarmFacts{
		Name: "s", Now: time.Now(), Found: true,
		Shards: []doctor.ShardFacts{
			{Shard: 0, Holder: "g", Entries: 10, Answered: 10}, {Shard: 1, Holder: "g", Entries: 10, Answered: 10},
		},
		Agents:  []jobs.Agent{{Name: "g", Pool: jobs.PoolGPU, State: "serving", MaxShards: 4, Running: 2}},
		Servers: queued().Servers,
	}
}

type jobCase struct {
	cause doctor.Cause
	says  string
	plant func(f *doctor.JobFacts)
}

type swarmCase struct {
	cause doctor.Cause
	says  string
	plant func(f *doctor.SwarmFacts)
}

var jobCases = []jobCase{
	{doctor.QueuedBehind, "3 jobs", func(*doctor.JobFacts) {}},
	{doctor.Running, "on w, attempt 2", func(f *doctor.JobFacts) {
		f.Listed.State, f.Listed.Running = queue.StateRunning, &jobs.Running{Worker: "w", Attempt: 2, Since: f.Now}
	}},
	{doctor.Done, "done", func(f *doctor.JobFacts) { f.Result = &jobs.Result{Status: jobs.Done} }},
	{doctor.Cancelled, "cancelled", func(f *doctor.JobFacts) { fail(f, jobs.CodeCanceled) }},
	{doctor.Expired, "deadline", func(f *doctor.JobFacts) { fail(f, jobs.CodeDeadline) }},
	{doctor.Skipped, "not done", func(f *doctor.JobFacts) { fail(f, jobs.CodeParent) }},
	{doctor.Poisoned, "input: row 7", func(f *doctor.JobFacts) { fail(f, jobs.CodeInput) }},
	{doctor.Poisoned, "invalid: of no kind", func(f *doctor.JobFacts) {
		f.Listed, f.Dead = nil, &jobs.DeadLetter{
			Reason: jobs.Errorf(jobs.CodeInvalid, "of no kind"), Attempts: 1,
			Worker: "w",
		}
	}},
	{doctor.Unknown, "nothing is known of job j", func(f *doctor.JobFacts) { f.Listed = nil }},
	{doctor.Parents, "p, q", func(f *doctor.JobFacts) {
		f.Listed.State, f.Listed.Waits = queue.StateWaiting, []string{"p", "q"}
	}},
	{doctor.Delayed, "in 1h0m0s", func(f *doctor.JobFacts) {
		f.Listed.State, f.Listed.NotBefore = queue.StateDelayed, f.Now.Add(time.Hour)
	}},
	{doctor.PoolPaused, "pool cpu is paused", func(f *doctor.JobFacts) { f.Pool.Paused = true }},
	{doctor.KindPaused, "kind k of pool cpu", func(f *doctor.JobFacts) { f.Pool.Sources[0].Paused = true }},
	{doctor.NoAgent, "handle: other", func(f *doctor.JobFacts) { f.Agents[0].Kinds = []string{"other"} }},
	{doctor.NoAgent, "0 agents", func(f *doctor.JobFacts) { f.Agents = nil }},
	{doctor.NoAgent, "none handles jobs", func(f *doctor.JobFacts) { f.Agents[0].Kinds = nil }},
	{doctor.AgentsFull, "runs 2 of 2", func(f *doctor.JobFacts) { f.Agents[0].Running = 2 }},
	{doctor.AgentsFull, "all slots are taken", func(f *doctor.JobFacts) { onGPU(f, 2) }},
	{doctor.QueuedBehind, "agents are free", func(f *doctor.JobFacts) { onGPU(f, 1) }},
	{doctor.AgentsDraining, "drain", func(f *doctor.JobFacts) { f.Agents[0].State = "draining" }},
	{doctor.AgentTrouble, "no scratch", func(f *doctor.JobFacts) { f.Agents[0].State = "no scratch (/x)" }},
	{doctor.TenantLimit, "may run 1", func(f *doctor.JobFacts) {
		one := 1
		f.Running, f.Limits = 1,
			[]jobs.TenantLimits{{Tenant: jobs.DefaultTenant, Limits: jobs.Limits{Concurrency: &one}}}
	}},
	{doctor.RetryBackoff, "attempt 2 on a", func(f *doctor.JobFacts) {
		f.Listed.State, f.Worker, f.Attempt = queue.StateRetrying, "a", 2
		f.Ended = &doctor.AttemptEnd{Worker: "a", Attempt: 2, At: f.Now, Pause: time.Minute, Error: "no row"}
	}},
	{doctor.LeaseOfDead, "worker gone is gone, and its lease on the job has not ended", func(f *doctor.JobFacts) {
		f.Listed.State, f.Worker, f.Attempt = queue.StateRetrying, "gone", 1
	}},
	{doctor.LeaseOfDead, "none has stored the end", func(f *doctor.JobFacts) { // its handler logged nothing
		f.Listed.State = queue.StateRetrying
	}},
	{doctor.LeaseOfDead, "do not answer: a", func(f *doctor.JobFacts) {
		f.Listed.State, f.Silent = queue.StateRetrying, []string{"a"}
	}},
	{doctor.LeaseOfDead, "logged its last line on a; it does not answer", func(f *doctor.JobFacts) {
		f.Listed.State, f.Silent, f.Worker, f.Attempt = queue.StateRetrying, []string{"a"}, "a", 2
	}},
	{doctor.LeaseOfDead, "none has stored the end", func(f *doctor.JobFacts) { // the attempt after it was lost
		f.Listed.State = queue.StateRetrying
		f.Ended = &doctor.AttemptEnd{Worker: "a", Attempt: 1, At: f.Now.Add(-time.Minute), Pause: time.Second}
	}},
	{doctor.AgentsFull, "attempt 1 ended, and the next one is due", func(f *doctor.JobFacts) {
		f.Listed.State, f.Agents[0].Running = queue.StateRetrying, 2
		f.Ended = &doctor.AttemptEnd{Worker: "a", Attempt: 1, At: f.Now.Add(-time.Minute), Pause: time.Second}
	}},
	{doctor.NoAgent, "had the job, and is gone", func(f *doctor.JobFacts) {
		f.Listed.State, f.Agents = queue.StateRetrying, nil
	}},
	{doctor.NoConnection, "refused", func(f *doctor.JobFacts) { f.Servers.Error = errors.New("connection refused") }},
	{doctor.NoLeader, "EXO_JOBS_CPU", func(f *doctor.JobFacts) { f.Servers.Report.Streams[0].Leaderless = true }},
	{doctor.NoLeader, "JetStream has no leader", func(f *doctor.JobFacts) {
		f.Servers.Error = fmt.Errorf("ask: %w", telemetry.ErrNoLeader)
	}},
	{doctor.DiskFull, "disk is full", func(f *doctor.JobFacts) {
		f.Servers.Report.Store,
			f.Servers.Report.StoreLimit = 9, 1
	}},
	{doctor.StreamFull, "at its limit", func(f *doctor.JobFacts) {
		f.Servers.Report.Streams[0].Messages, f.Servers.Report.Streams[0].MaxMsgs = 5, 5
	}},
}

var swarmCases = []swarmCase{
	{doctor.Idle, "all 20 entries", func(*doctor.SwarmFacts) {}},
	{doctor.OwnerWaits, "job run", func(f *doctor.SwarmFacts) { f.Owner = "run" }},
	{doctor.Serving, "3 entries wait", func(f *doctor.SwarmFacts) { f.Shards[1].Entries, f.Shards[1].Rate = 13, 2 }},
	{doctor.Stalled, "shard 1 of 2", func(f *doctor.SwarmFacts) { f.Shards[1].Entries = 13 }},
	{doctor.NoGPUAgent, "no GPU agent", func(f *doctor.SwarmFacts) { f.Agents, f.Shards[0].Holder = nil, "" }},
	{doctor.GPUFull, "no GPU agent has room", func(f *doctor.SwarmFacts) {
		f.Shards[0].Holder, f.Agents[0].Running = "", 4
	}},
	{doctor.Unserved, "holds the shard yet", func(f *doctor.SwarmFacts) { f.Shards[0].Holder = "" }},
	{doctor.HolderLost, "h was lost", func(f *doctor.SwarmFacts) {
		f.Shards[0].Holder, f.Shards[0].LostHolder = "",
			"h"
	}},
	{doctor.HolderLost, "no other GPU agent", func(f *doctor.SwarmFacts) {
		f.Agents, f.Shards[0].Holder, f.Shards[0].LostHolder = nil, "", "h"
	}},
	{doctor.Replaying, "50 %, done in about 6s", func(f *doctor.SwarmFacts) {
		f.Shards[0].Recovering = &jobs.Recovery{Entry: 60, Of: 120, Rate: 10}
	}},
	{doctor.DeviceFail, "device of g has failed", func(f *doctor.SwarmFacts) { f.Agents[0].State = "emergency" }},
	{doctor.Degraded, "degraded", func(f *doctor.SwarmFacts) {
		f.Agents[0].State, f.Shards[0].Entries, f.Shards[0].Rate = "reduced", 12, 1
	}},
	{doctor.Rejected, "unknown id", func(f *doctor.SwarmFacts) { f.Rejected = "unknown id" }},
	{doctor.Ending, "being removed", func(f *doctor.SwarmFacts) { f.Ending = true }},
	{doctor.BadRecord, "version 9", func(f *doctor.SwarmFacts) { f.Error = "version 9" }},
	{doctor.NoSwarm, "no swarm s", func(f *doctor.SwarmFacts) { f.Found = false }},
	{
		doctor.NoConnection, "refused",
		func(f *doctor.SwarmFacts) { f.Servers.Error = errors.New("connection refused") },
	},
	{doctor.NoLeader, "KV_EXO_LEASES", func(f *doctor.SwarmFacts) { f.Servers.Report.Streams[1].Leaderless = true }},
	{doctor.NoLeader, "EXO_LOG_s_1_in", func(f *doctor.SwarmFacts) { f.Shards[1].Leaderless = "EXO_LOG_s_1_in" }},
	{doctor.DiskFull, "disk is full", func(f *doctor.SwarmFacts) { f.Servers.Report.Refuses = true }},
}

func fail(f *doctor.JobFacts, code jobs.Code) {
	f.Result = &jobs.Result{Status: jobs.Failed, Error: jobs.Errorf(code, "row 7"), Attempts: 5, Worker: "w"}
}

// TestCauses: each planted cause is named, with its evidence, and with a cure where an operator
// must act. Each cause of the package is planted.
func TestCauses(t *testing.T) {
	planted := map[doctor.Cause]bool{}
	check := func(r doctor.Reason, cause doctor.Cause, says string) {
		t.Helper()
		planted[cause] = true
		text := r.Sentence + "; " + strings.Join(r.Evidence, "; ")
		if r.Cause != cause || !strings.Contains(text, says) {
			t.Errorf("%+v, want %s with %q", r, cause, says)
		}
		if r.Sentence == "" || r.Stuck && r.Cure == "" {
			t.Errorf("%+v: no sentence, or no cure", r)
		}
	}
	for _, c := range jobCases {
		f := queued()
		c.plant(f)
		check(doctor.JobReason(*f), c.cause, c.says)
	}
	for _, c := range swarmCases {
		f := served()
		c.plant(f)
		check(doctor.SwarmReason(*f), c.cause, c.says)
	}
	for _, c := range detectorCases {
		f := reading()
		c.plant(f)
		check(doctor.DetectorReason(*f), c.cause, c.says)
	}
	for _, c := range causes(t) {
		if !planted[c] {
			t.Errorf("cause %s is not planted", c)
		}
	}
}

// causes returns the constants of type Cause in the source.
func causes(t *testing.T) (all []doctor.Cause) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, doctor.Cause(text))
		}
	}
	return all
}
