package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, 8)
}

func watch(t *testing.T, c *natsq.Conn) *cluster.Watcher {
	t.Helper()
	w := cluster.Start(cluster.Options{Conn: c, Every: 100 * time.Millisecond})
	t.Cleanup(w.Close)
	return w
}

// until waits for a state that is as the test wants it.
func until(t *testing.T, w *cluster.Watcher, what string, ok func(*cluster.State) bool) *cluster.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for s := w.State(); ; {
		if s.Frame > 0 && ok(s) {
			return s
		}
		next, err := w.Wait(ctx, s.Frame)
		if err != nil {
			data, _ := json.Marshal(s)
			t.Fatalf("%s: does not come; the last state is %s", what, data)
		}
		s = next
	}
}

// announce enters an agent into the registry, as processes do.
func announce(t *testing.T, c *natsq.Conn, describe func() jobs.Agent) {
	t.Helper()
	entry, err := c.Registry.Announce(t.Context(), describe, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = entry.Close(context.WithoutCancel(t.Context())) })
}

const simulation = `name: crowd
addressed: agent
cell: {kind: gru, params: {hidden: 8}}
agents: 1000
agents_per_group: 100
features: [a]
vote: {candidates: [x, y], rule: majority}
seed: 1
`

func create(t *testing.T, c *natsq.Conn) swarms.Swarm {
	t.Helper()
	spec, err := swarm.Parse("crowd.yaml", []byte(simulation))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := swarms.Swarm{
		Version: jobs.Version, ID: spec.Name, Name: spec.Name, Spec: data, Groups: spec.Groups(),
		Nonce:   swarms.NewNonce(),
		Created: time.Now().UTC(),
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := c.Swarms.Log(s.Key(), 0, d).Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Swarms.CreateSwarm(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWatcher: the state follows a cluster from an empty one to a swarm that is served, with the
// numbers of its agents and their history.
func TestWatcher(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	conn := jobstest.Open(t, s, natsq.Connect)
	w := watch(t, conn)
	until(t, w, "an empty cluster", func(s *cluster.State) bool {
		return s.Error == "" && len(s.Agents) == 0 && len(s.Swarms) == 0 && len(s.Pools) == 2 && s.NATS.Version != ""
	})
	c := jobstest.Open(t, s, natsq.Connect)
	record := create(t, c)
	waits := until(t, w, "the swarm without an agent", func(s *cluster.State) bool { return len(s.Swarms) == 1 })
	if sw := waits.Swarms[0]; sw.State != cluster.StateWaiting || sw.Agents != 1000 || sw.Cell != "gru" ||
		sw.Addressed != "agent" || len(sw.Shards) != 1 || strings.Join(sw.Candidates, ",") != "x,y" {
		t.Errorf("the swarm is shown as %+v", sw)
	}
	if r, err := doctor.ExplainSwarm(t.Context(), conn, "crowd"); err != nil || r.Cause != doctor.NoGPUAgent {
		t.Errorf("without an agent: %+v, %v, want %s", r, err, doctor.NoGPUAgent)
	}

	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu", Device: dev, Queue: c.Swarms, PageMemory: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Stop()
	announce(t, c, func() jobs.Agent {
		return jobs.Agent{
			Name: "gpu", Pool: jobs.PoolGPU, State: "serving", Started: time.Now(),
			Running: agent.Shards(),
		}
	})
	asked := make(chan bool, 1000)
	seen := 0.0
	silent, err := c.Telemetry.Answer("gpu", func(names []string) []jobs.Sample {
		select {
		case asked <- slices.Contains(names, "exoswarm_swarm_observations_total"):
		default:
		}
		seen += 100
		return []jobs.Sample{{Name: "exoswarm_swarm_observations_total", Value: seen}}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer silent()
	until(t, w, "the served swarm", func(s *cluster.State) bool {
		return s.Swarms[0].State == cluster.StateServed && s.Swarms[0].Shards[0].Holder == "gpu" &&
			s.Numbers[cluster.ShardCount] == 1
	})
	done := w.Watched()
	defer done()
	log := c.Swarms.Log(record.Key(), 0, swarms.In)
	if err := log.Append(t.Context(), 0, swarms.Entry{
		Kind: swarms.EntryTick, Ref: 1,
		Data: []byte(`{"v":1,"count":2}`),
	},
		swarms.Entry{Kind: swarms.EntryTick, Ref: 2, Data: []byte(`{"v":1,"count":1}`)}); err != nil {
		t.Fatal(err)
	}
	until(t, w, "two answers", func(s *cluster.State) bool {
		sh := s.Swarms[0].Shards[0]
		return sh.Entries == 2 && sh.Answered == 2
	})
	until(t, w, "numbers of the agent", func(s *cluster.State) bool {
		return len(s.Agents) == 1 && s.Agents[0].Telemetry != nil && s.Numbers[cluster.ObservationRate] > 0
	})
	if !<-asked {
		t.Error("the agent is asked, and not for its observations")
	}
	d, err := w.Decisions(t.Context(), "crowd", 0, 0, 10)
	if err != nil || len(d) != 2 || d[0].Ref != 2 || d[1].Kind != swarms.EntryTicked ||
		!strings.Contains(string(d[1].Body), `"stepped":2000`) {
		t.Errorf("decisions: %+v, %v, want the two answers, newest first", d, err)
	}
	if _, err := w.Decisions(t.Context(), "crowd", 1, 0, 10); err == nil {
		t.Error("the decisions of shard 1 of 1 are returned, want an error")
	}
	if r, err := doctor.ExplainSwarm(t.Context(), conn, "crowd"); err != nil || r.Cause != doctor.Idle {
		t.Errorf("without entries: %+v, %v, want %s", r, err, doctor.Idle)
	}
	h := w.History([]string{cluster.ShardCount, "nothing"}, time.Now().Add(-time.Minute))
	if len(h.At) == 0 || len(h.Series) != 1 || len(h.Series[cluster.ShardCount]) != len(h.At) {
		t.Errorf("the history is %+v, want one series", h)
	}
}

// TestLostServer: a server that goes away is shown with the last state, and named as the cause.
func TestLostServer(t *testing.T) {
	testkit.OnlyLong(t)
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	create(t, c)
	w := watch(t, c)
	until(t, w, "the swarm", func(s *cluster.State) bool { return len(s.Swarms) == 1 })
	s.Close()
	gone := until(t, w, "the loss of the server", func(s *cluster.State) bool { return s.Error != "" })
	if len(gone.Swarms) != 1 || gone.Since.IsZero() || gone.Numbers != nil {
		t.Errorf("without a server the state is %+v, want the last one with its time", gone)
	}
	if r, err := doctor.ExplainSwarm(t.Context(), c, "crowd"); err != nil || r.Cause != doctor.NoConnection {
		t.Errorf("without a server: %+v, %v, want %s", r, err, doctor.NoConnection)
	}
	if r, err := doctor.ExplainJob(t.Context(), c, "any"); err != nil || r.Cause != doctor.NoConnection {
		t.Errorf("without a server: %+v, %v, want %s", r, err, doctor.NoConnection)
	}
}

// TestExplainJob: each cause is planted in a real queue and named.
func TestExplainJob(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, natsq.Connect)
	ctx := t.Context()
	want := func(id string, cause doctor.Cause, evidence string) {
		t.Helper()
		var r doctor.Reason
		testkit.Until(t, fmt.Sprintf("%s of job %s with %q", cause, id, evidence), func() bool {
			var err error
			if r, err = doctor.ExplainJob(ctx, c, id); err != nil {
				t.Fatal(err)
			}
			text := r.Sentence + " " + strings.Join(r.Evidence, " ")
			return r.Cause == cause && strings.Contains(text, evidence)
		})
		if r.Stuck && r.Cure == "" {
			t.Errorf("job %s: %+v: it is stuck, and there is no cure", id, r)
		}
	}
	submit := func(j jobs.Job) {
		t.Helper()
		if err := c.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	job := jobstest.Job
	want("never", doctor.Unknown, "never")

	submit(job("alone", "work"))
	want("alone", doctor.NoAgent, "0 agents")

	release := make(chan struct{})
	worker := jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "worker", Concurrency: 1, Handlers: map[string]jobs.Handler{
			"work": func(ctx context.Context, _ jobs.Job, progress func(any)) (any, error) {
				progress(map[string]int{"rows": 12})
				select {
				case <-release:
					return 1, nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			},
			"fail": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { // it logs nothing
				if j.ID == "bad" {
					return nil, jobs.Errorf(jobs.CodeInput, "row 7 is no number")
				}
				return nil, jobs.Retry(fmt.Errorf("not today"))
			},
		},
	})
	state := "serving"
	announce(t, c, func() jobs.Agent {
		return jobs.Agent{
			Name: "worker", Pool: jobs.PoolCPU, Kinds: []string{"work", "fail"}, Concurrency: 1,
			Running: worker.Running(), State: state, Started: time.Now(),
		}
	})
	want("alone", doctor.Running, `"rows":12`)
	submit(job("second", "work"))
	want("second", doctor.AgentsFull, "runs 1 of 1 jobs")
	submit(job("foreign", "other"))
	want("foreign", doctor.NoAgent, "fail, work")

	limit := 1
	if err := c.Control.LimitTenant(ctx, jobs.EveryTenant, jobs.Limits{Concurrency: &limit}); err != nil {
		t.Fatal(err)
	}
	want("second", doctor.TenantLimit, "may run 1")
	if err := c.Control.UnlimitTenant(ctx, jobs.EveryTenant); err != nil {
		t.Fatal(err)
	}
	if err := c.Control.Pause(ctx, jobs.PoolCPU, "work"); err != nil {
		t.Fatal(err)
	}
	want("second", doctor.KindPaused, "work")
	if err := c.Control.Pause(ctx, jobs.PoolCPU, ""); err != nil {
		t.Fatal(err)
	}
	want("second", doctor.PoolPaused, "cpu")
	for _, kind := range []string{"", "work"} {
		if err := c.Control.Resume(ctx, jobs.PoolCPU, kind); err != nil {
			t.Fatal(err)
		}
	}

	late := job("late", "work")
	late.NotBefore = time.Now().Add(time.Hour)
	submit(late)
	want("late", doctor.Delayed, "not_before")
	child := job("child", "work")
	child.After = []string{"alone"}
	submit(child)
	want("child", doctor.Parents, "alone")
	over := job("over", "work")
	over.Deadline = time.Now().Add(-time.Second)

	close(release)
	want("alone", doctor.Done, "attempt 1")
	want("child", doctor.Done, "")
	submit(over)
	want("over", doctor.Expired, "")
	submit(job("again", "fail"))
	want("again", doctor.RetryBackoff, "on worker ended")
	cancelled := job("cancelled", "other")
	submit(cancelled)
	if err := c.Queue.Cancel(ctx, cancelled, false); err != nil {
		t.Fatal(err)
	}
	submit(job("bad", "fail"))
	want("bad", doctor.Poisoned, "row 7")
	after := job("after", "work")
	after.After = []string{"bad"}
	submit(after)
	want("after", doctor.Skipped, "bad")

	// A delivery that nobody renews or gives back belongs to a dead worker. Only a lost worker has
	// its kind, so that no other worker takes the job.
	dead := jobstest.Open(t, s, natsq.Connect)
	lost := jobstest.Work(t, dead.Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "lost", Concurrency: 1, Handlers: map[string]jobs.Handler{
			"silent": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
		},
	})
	announce(t, c, func() jobs.Agent {
		return jobs.Agent{Name: "lost", Pool: jobs.PoolCPU, Kinds: []string{"silent"}, State: "serving", Running: 1}
	})
	submit(job("held", "silent"))
	want("held", doctor.Running, "")
	dead.Close()
	want("held", doctor.LeaseOfDead, "lost")
	lost.Stop()
}
