package explain_test

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

	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

func TestMain(m *testing.M) { leak.Check(m) }

// queued is a job that waits for an agent, in a queue that nothing is wrong with.
func queued() *explain.JobFacts {
	return &explain.JobFacts{
		ID: "j", Now: time.Now(),
		Listed: &queue.ListedJob{Job: jobs.Job{ID: "j", Pool: jobs.PoolCPU, Kind: "k"}, State: queue.StateQueued},
		Pool: jobs.QueueStats{Pool: jobs.PoolCPU, Sources: []jobs.SourceStats{
			{Kind: "k", Lane: jobs.Normal, Tenant: jobs.DefaultTenant, Waiting: 3},
		}},
		Agents: []jobs.Agent{{Name: "a", Pool: jobs.PoolCPU, Kinds: []string{"k"}, State: "serving", Concurrency: 2}},
		Servers: explain.Facts{Report: &telemetry.ServerReport{
			Streams: []telemetry.ServerStream{
				{Name: "EXO_JOBS_CPU", Replicas: 3}, {Name: "KV_EXO_LEASES", Replicas: 3},
			},
		}},
	}
}

// onGPU makes the job one of pool gpu, whose agent has many shards and runs so many of two jobs.
func onGPU(f *explain.JobFacts, running int) {
	f.Listed.Pool, f.Pool.Pool = jobs.PoolGPU, jobs.PoolGPU
	f.Agents[0].Pool, f.Agents[0].Concurrency, f.Agents[0].Running = jobs.PoolGPU, 0, 30
	f.Agents[0].JobSlots, f.Agents[0].JobsRunning = 2, running
}

// served is a swarm of two shards that are served and have nothing to do.
func served() *explain.SwarmFacts {
	return &explain.SwarmFacts{
		Name: "s", Now: time.Now(), Found: true,
		Shards: []explain.ShardFacts{
			{Shard: 0, Holder: "g", Entries: 10, Answered: 10}, {Shard: 1, Holder: "g", Entries: 10, Answered: 10},
		},
		Agents:  []jobs.Agent{{Name: "g", Pool: jobs.PoolGPU, State: "serving", MaxShards: 4, Running: 2}},
		Servers: queued().Servers,
	}
}

type jobCase struct {
	cause explain.Cause
	says  string
	plant func(f *explain.JobFacts)
}

type swarmCase struct {
	cause explain.Cause
	says  string
	plant func(f *explain.SwarmFacts)
}

var jobCases = []jobCase{
	{explain.QueuedBehind, "3 jobs", func(*explain.JobFacts) {}},
	{explain.Running, "on w, attempt 2", func(f *explain.JobFacts) {
		f.Listed.State, f.Listed.Running = queue.StateRunning, &jobs.Running{Worker: "w", Attempt: 2, Since: f.Now}
	}},
	{explain.Done, "done", func(f *explain.JobFacts) { f.Result = &jobs.Result{Status: jobs.Done} }},
	{explain.Cancelled, "cancelled", func(f *explain.JobFacts) { fail(f, jobs.CodeCanceled) }},
	{explain.Expired, "deadline", func(f *explain.JobFacts) { fail(f, jobs.CodeDeadline) }},
	{explain.Skipped, "not done", func(f *explain.JobFacts) { fail(f, jobs.CodeParent) }},
	{explain.Poisoned, "input: row 7", func(f *explain.JobFacts) { fail(f, jobs.CodeInput) }},
	{explain.Poisoned, "invalid: of no kind", func(f *explain.JobFacts) {
		f.Listed, f.Dead = nil, &jobs.DeadLetter{
			Reason: jobs.Errorf(jobs.CodeInvalid, "of no kind"), Attempts: 1,
			Worker: "w",
		}
	}},
	{explain.Unknown, "nothing is known of job j", func(f *explain.JobFacts) { f.Listed = nil }},
	{explain.Parents, "p, q", func(f *explain.JobFacts) {
		f.Listed.State, f.Listed.Waits = queue.StateWaiting, []string{"p", "q"}
	}},
	{explain.Delayed, "in 1h0m0s", func(f *explain.JobFacts) {
		f.Listed.State, f.Listed.NotBefore = queue.StateDelayed, f.Now.Add(time.Hour)
	}},
	{explain.PoolPaused, "pool cpu is paused", func(f *explain.JobFacts) { f.Pool.Paused = true }},
	{explain.KindPaused, "kind k of pool cpu", func(f *explain.JobFacts) { f.Pool.Sources[0].Paused = true }},
	{explain.NoAgent, "handle: other", func(f *explain.JobFacts) { f.Agents[0].Kinds = []string{"other"} }},
	{explain.NoAgent, "0 agents", func(f *explain.JobFacts) { f.Agents = nil }},
	{explain.NoAgent, "none handles jobs", func(f *explain.JobFacts) { f.Agents[0].Kinds = nil }},
	{explain.AgentsFull, "runs 2 of 2", func(f *explain.JobFacts) { f.Agents[0].Running = 2 }},
	{explain.AgentsFull, "all slots are taken", func(f *explain.JobFacts) { onGPU(f, 2) }},
	{explain.QueuedBehind, "agents are free", func(f *explain.JobFacts) { onGPU(f, 1) }},
	{explain.AgentsDraining, "drain", func(f *explain.JobFacts) { f.Agents[0].State = "draining" }},
	{explain.AgentTrouble, "no scratch", func(f *explain.JobFacts) { f.Agents[0].State = "no scratch (/x)" }},
	{explain.TenantLimit, "may run 1", func(f *explain.JobFacts) {
		one := 1
		f.Running, f.Limits = 1,
			[]jobs.TenantLimits{{Tenant: jobs.DefaultTenant, Limits: jobs.Limits{Concurrency: &one}}}
	}},
	{explain.RetryBackoff, "attempt 2 on a", func(f *explain.JobFacts) {
		f.Listed.State, f.Worker, f.Attempt = queue.StateRetrying, "a", 2
		f.Ended = &explain.AttemptEnd{Worker: "a", Attempt: 2, At: f.Now, Pause: time.Minute, Error: "no row"}
	}},
	{explain.LeaseOfDead, "worker gone is gone, and its lease on the job has not ended", func(f *explain.JobFacts) {
		f.Listed.State, f.Worker, f.Attempt = queue.StateRetrying, "gone", 1
	}},
	{explain.LeaseOfDead, "none has stored the end", func(f *explain.JobFacts) { // its handler logged nothing
		f.Listed.State = queue.StateRetrying
	}},
	{explain.LeaseOfDead, "do not answer: a", func(f *explain.JobFacts) {
		f.Listed.State, f.Silent = queue.StateRetrying, []string{"a"}
	}},
	{explain.LeaseOfDead, "logged its last line on a; it does not answer", func(f *explain.JobFacts) {
		f.Listed.State, f.Silent, f.Worker, f.Attempt = queue.StateRetrying, []string{"a"}, "a", 2
	}},
	{explain.LeaseOfDead, "none has stored the end", func(f *explain.JobFacts) { // the attempt after it was lost
		f.Listed.State = queue.StateRetrying
		f.Ended = &explain.AttemptEnd{Worker: "a", Attempt: 1, At: f.Now.Add(-time.Minute), Pause: time.Second}
	}},
	{explain.AgentsFull, "attempt 1 ended, and the next one is due", func(f *explain.JobFacts) {
		f.Listed.State, f.Agents[0].Running = queue.StateRetrying, 2
		f.Ended = &explain.AttemptEnd{Worker: "a", Attempt: 1, At: f.Now.Add(-time.Minute), Pause: time.Second}
	}},
	{explain.NoAgent, "had the job, and is gone", func(f *explain.JobFacts) {
		f.Listed.State, f.Agents = queue.StateRetrying, nil
	}},
	{explain.NoConnection, "refused", func(f *explain.JobFacts) { f.Servers.Error = errors.New("connection refused") }},
	{explain.NoLeader, "EXO_JOBS_CPU", func(f *explain.JobFacts) { f.Servers.Report.Streams[0].Leaderless = true }},
	{explain.NoLeader, "JetStream has no leader", func(f *explain.JobFacts) {
		f.Servers.Error = fmt.Errorf("ask: %w", telemetry.ErrNoLeader)
	}},
	{explain.DiskFull, "disk is full", func(f *explain.JobFacts) {
		f.Servers.Report.Store,
			f.Servers.Report.StoreLimit = 9, 1
	}},
	{explain.StreamFull, "at its limit", func(f *explain.JobFacts) {
		f.Servers.Report.Streams[0].Messages, f.Servers.Report.Streams[0].MaxMsgs = 5, 5
	}},
}

var swarmCases = []swarmCase{
	{explain.Idle, "all 20 entries", func(*explain.SwarmFacts) {}},
	{explain.OwnerWaits, "job run", func(f *explain.SwarmFacts) { f.Owner = "run" }},
	{explain.Serving, "3 entries wait", func(f *explain.SwarmFacts) { f.Shards[1].Entries, f.Shards[1].Rate = 13, 2 }},
	{explain.Stalled, "shard 1 of 2", func(f *explain.SwarmFacts) { f.Shards[1].Entries = 13 }},
	{explain.NoGPUAgent, "no GPU agent", func(f *explain.SwarmFacts) { f.Agents, f.Shards[0].Holder = nil, "" }},
	{explain.GPUFull, "no GPU agent has room", func(f *explain.SwarmFacts) {
		f.Shards[0].Holder, f.Agents[0].Running = "", 4
	}},
	{explain.Unserved, "holds the shard yet", func(f *explain.SwarmFacts) { f.Shards[0].Holder = "" }},
	{explain.HolderLost, "h was lost", func(f *explain.SwarmFacts) {
		f.Shards[0].Holder, f.Shards[0].LostHolder = "",
			"h"
	}},
	{explain.HolderLost, "no other GPU agent", func(f *explain.SwarmFacts) {
		f.Agents, f.Shards[0].Holder, f.Shards[0].LostHolder = nil, "", "h"
	}},
	{explain.Replaying, "50 %, done in about 6s", func(f *explain.SwarmFacts) {
		f.Shards[0].Recovering = &jobs.Recovery{Entry: 60, Of: 120, Rate: 10}
	}},
	{explain.DeviceFail, "device of g has failed", func(f *explain.SwarmFacts) { f.Agents[0].State = "emergency" }},
	{explain.Degraded, "degraded", func(f *explain.SwarmFacts) {
		f.Agents[0].State, f.Shards[0].Entries, f.Shards[0].Rate = "reduced", 12, 1
	}},
	{explain.Rejected, "unknown id", func(f *explain.SwarmFacts) { f.Rejected = "unknown id" }},
	{explain.Ending, "being removed", func(f *explain.SwarmFacts) { f.Ending = true }},
	{explain.BadRecord, "version 9", func(f *explain.SwarmFacts) { f.Error = "version 9" }},
	{explain.NoSwarm, "no swarm s", func(f *explain.SwarmFacts) { f.Found = false }},
	{
		explain.NoConnection, "refused",
		func(f *explain.SwarmFacts) { f.Servers.Error = errors.New("connection refused") },
	},
	{explain.NoLeader, "KV_EXO_LEASES", func(f *explain.SwarmFacts) { f.Servers.Report.Streams[1].Leaderless = true }},
	{explain.NoLeader, "EXO_LOG_s_1_in", func(f *explain.SwarmFacts) { f.Shards[1].Leaderless = "EXO_LOG_s_1_in" }},
	{explain.DiskFull, "disk is full", func(f *explain.SwarmFacts) { f.Servers.Report.Refuses = true }},
}

func fail(f *explain.JobFacts, code jobs.Code) {
	f.Result = &jobs.Result{Status: jobs.Failed, Error: jobs.Errorf(code, "row 7"), Attempts: 5, Worker: "w"}
}

// TestCauses: each planted cause is named, with its evidence, and with a cure where somebody must act.
// Each cause of the package is planted.
func TestCauses(t *testing.T) {
	planted := map[explain.Cause]bool{}
	check := func(r explain.Reason, cause explain.Cause, says string) {
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
		check(explain.Job(*f), c.cause, c.says)
	}
	for _, c := range swarmCases {
		f := served()
		c.plant(f)
		check(explain.Swarm(*f), c.cause, c.says)
	}
	for _, c := range detectorCases {
		f := reading()
		c.plant(f)
		check(explain.Detector(*f), c.cause, c.says)
	}
	for _, c := range causes(t) {
		if !planted[c] {
			t.Errorf("cause %s is not planted", c)
		}
	}
}

// causes returns the constants of type Cause in the source.
func causes(t *testing.T) (all []explain.Cause) {
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
			all = append(all, explain.Cause(text))
		}
	}
	return all
}
