package action_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var me = control.Actor{User: "bob", From: "127.0.0.1:1", Via: "dashboard"}

// cluster is a real queue with a worker of the kinds hold, which waits, and bad, which fails for
// good.
type cluster struct {
	t      *testing.T
	server *server.Server
	conn   *natsq.Conn
	op     *action.Operator
}

func open(t *testing.T) *cluster {
	t.Helper()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir()})
	c := &cluster{t: t, server: s, conn: jobstest.Open(t, s, natsq.Connect)}
	var err error
	if c.op, err = action.New(action.Options{Conn: c.conn}); err != nil {
		t.Fatalf("action.New: %v", err)
	}
	return c
}

// worker starts a worker that is in no registry.
func (c *cluster) worker() *natsq.Worker {
	c.t.Helper()
	return jobstest.Work(c.t, jobstest.Open(c.t, c.server, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Concurrency: 4, Handlers: map[string]jobs.Handler{
			"hold": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
			"bad": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "a bad row")
			},
		},
	})
}

func (c *cluster) work() {
	c.t.Helper()
	w := c.worker()
	entry, err := c.conn.Registry.Announce(c.t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Name: "w", Pool: jobs.PoolCPU, Kinds: []string{"hold", "bad"}, Concurrency: 4, State: "serving",
			Running: w.Running(),
		}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatalf("Announce: %v", err)
	}
	c.t.Cleanup(func() { _ = entry.Close(context.WithoutCancel(c.t.Context())) })
}

func (c *cluster) submit(id, kind string, after ...string) {
	c.t.Helper()
	j := jobstest.Job(id, kind)
	j.Submitted, j.After = time.Now().UTC(), after
	if err := c.conn.Queue.Submit(c.t.Context(), j); err != nil {
		c.t.Fatalf("submit %s: %v", id, err)
	}
}

func (c *cluster) preview(r action.Request) action.Preview {
	c.t.Helper()
	p, err := c.op.Preview(c.t.Context(), r)
	if err != nil {
		c.t.Fatalf("preview of %+v: %v", r, err)
	}
	again, err := c.op.Preview(c.t.Context(), p.Request)
	if err != nil || again.Digest != p.Digest {
		c.t.Errorf("the preview of %+v is another one at once: %+v and %+v, %v", r, p, again, err)
	}
	return p
}

// confirm confirms a preview and checks that the audit has it as done.
func (c *cluster) confirm(p action.Preview) action.Outcome {
	c.t.Helper()
	out, err := c.op.Confirm(c.t.Context(), me, p.Request, p.Digest)
	if err != nil {
		c.t.Fatalf("confirm %+v: %v", p.Request, err)
	}
	e := c.newest()
	if e.Action != p.Request.Action || e.Outcome != control.OutcomeDone || e.Digest != p.Digest || e.User != me.User ||
		e.From != me.From || !strings.Contains(e.Detail, p.Sentence) ||
		!strings.Contains(e.Object, p.Request.Object) {
		c.t.Errorf("the audit has %+v of %+v", e, p)
	}
	return out
}

func (c *cluster) newest() (e control.AuditEntry) {
	c.t.Helper()
	if err := c.conn.Audit.List(c.t.Context(), time.Time{}, func(one control.AuditEntry) bool {
		e = one
		return false
	}); err != nil {
		c.t.Fatalf("list the audit: %v", err)
	}
	return e
}

// changed checks that a preview is refused because the cluster has changed.
func (c *cluster) changed(p action.Preview) {
	c.t.Helper()
	before := c.newest()
	_, err := c.op.Confirm(c.t.Context(), me, p.Request, p.Digest)
	var other *action.ChangedError
	if !errors.As(err, &other) || other.Preview.Digest == p.Digest || !errors.Is(err, action.ErrChanged) {
		c.t.Errorf("an old preview of %+v: %v, want %v", p.Request, err, action.ErrChanged)
	}
	if after := c.newest(); after.ID != before.ID {
		c.t.Errorf("a refused action is in the audit: %+v", after)
	}
}

// names returns what a preview affects under a description.
func names(p action.Preview, what string) string {
	for _, e := range p.Affects {
		if e.What == what {
			return fmt.Sprintf("%d%v", e.Count, e.Names)
		}
	}
	return "missing"
}

// TestCancel: the preview names the job, its children and its worker. A job that has started
// meanwhile has another preview. A confirmed job ends as cancelled.
func TestCancel(t *testing.T) {
	c := open(t)
	c.submit("a", "hold")
	c.submit("b", "hold", "a")
	waits := c.preview(action.Request{Action: "job.cancel", Object: "a"})
	if got := names(waits, "jobs that wait for it"); got != "1[b]" {
		t.Errorf("jobs that wait for it: %s, want b", got)
	}
	c.work()
	testkit.Until(t, "the job runs", func() bool {
		j, err := c.conn.Queue.Locate(t.Context(), "a")
		return err == nil && j.Running != nil
	})
	c.changed(waits)
	runs := c.preview(action.Request{Action: "job.cancel", Object: "a"})
	if !strings.Contains(runs.Sentence, "w runs in attempt 1") {
		t.Errorf("the preview says %q, want who runs it", runs.Sentence)
	}
	c.confirm(runs)
	if r := jobstest.Await(t, c.conn.Results, "a"); r.Error == nil || r.Error.Code != jobs.CodeCanceled {
		t.Errorf("the job ended as %+v, want cancelled", r)
	}
	if _, err := c.op.Confirm(t.Context(), me, runs.Request, runs.Digest); err == nil {
		t.Error("a confirmation of a job that is over succeeds")
	}
	if _, err := c.op.Preview(t.Context(), action.Request{Action: "job.cancel", Object: "none"}); !errors.Is(err,
		jobs.ErrNotFound) {
		t.Errorf("a job that is not there: %v, want %v", err, jobs.ErrNotFound)
	}
}

// TestDeadLetters: a letter, or all letters of a kind, are queued again or dropped. A new letter
// changes the preview of its kind.
func TestDeadLetters(t *testing.T) {
	c := open(t)
	w := c.worker()
	bury := func(id string) {
		c.submit(id, "bad")
		testkit.Until(t, "a dead letter of "+id, func() bool {
			n := 0
			err := c.conn.Letters.List(t.Context(), jobs.DeadFilter{ID: id},
				func(jobs.DeadLetter) bool { n++; return true })
			return err == nil && n == 1
		})
	}
	bury("a")
	of := action.Request{Action: "dlq.redrive", Pool: "cpu", Kind: "bad"}
	one := c.preview(of)
	bury("b")
	c.changed(one)
	if err := w.Drain(t.Context()); err != nil { // what is queued again stays queued
		t.Fatalf("Drain: %v", err)
	}
	both := c.preview(of)
	if got := names(both, "dead letters"); got != "2[a b]" {
		t.Errorf("dead letters: %s, want a and b", got)
	}
	if out := c.confirm(both); out.Count != 2 {
		t.Errorf("%d jobs queued again, want 2", out.Count)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := c.conn.Queue.Find(t.Context(), id); err != nil {
			t.Errorf("job %s is not queued: %v", id, err)
		}
	}
	c.worker()
	drop := action.Request{Action: "dlq.purge", Object: "a"}
	testkit.Until(t, "both have failed again", func() bool {
		_, err := c.op.Preview(t.Context(), drop)
		_, other := c.op.Preview(t.Context(), action.Request{Action: "dlq.purge", Object: "b"})
		return err == nil && other == nil
	})
	if out := c.confirm(c.preview(drop)); out.Count != 1 {
		t.Errorf("%d letters dropped, want 1", out.Count)
	}
	if _, err := c.op.Preview(t.Context(), drop); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a letter that is gone: %v, want %v", err, jobs.ErrNotFound)
	}
	if _, err := c.op.Preview(t.Context(), action.Request{Action: "dlq.purge"}); jobs.AsError(err).Code !=
		jobs.CodeInvalid {
		t.Errorf("all letters without a selection: %v, want a refusal", err)
	}
}

// TestPause: the preview shows the agents. Jobs that arrive meanwhile do not change it, and a pause
// by another operator does.
func TestPause(t *testing.T) {
	c := open(t)
	c.work()
	for _, kind := range []string{"", "hold"} {
		on := action.Request{Action: "queue.pause", Object: "cpu", Kind: kind}
		p := c.preview(on)
		if got := names(p, "agents"); got != "1[w]" {
			t.Errorf("agents: %s, want w", got)
		}
		c.submit("more"+kind, "nobody")
		c.confirm(p)
		c.changed(p)
		paused, err := c.conn.Control.PausedKeys(t.Context())
		if err != nil || len(paused) != 1 {
			t.Errorf("paused: %v, %v, want one", paused, err)
		}
		c.confirm(c.preview(action.Request{Action: "queue.resume", Object: "cpu", Kind: kind}))
		if paused, err = c.conn.Control.PausedKeys(t.Context()); err != nil || len(paused) != 0 {
			t.Errorf("paused: %v, %v, want none", paused, err)
		}
	}
	if _, err := c.op.Preview(t.Context(), action.Request{Action: "queue.pause", Object: "tpu"}); err == nil {
		t.Error("a pool that does not exist can be paused")
	}
}

// TestLimit: the preview has the limits before and after. A change by another operator changes it.
func TestLimit(t *testing.T) {
	c := open(t)
	r := action.Request{Action: "tenant.limit", Object: "acme", Limits: &jobs.Limits{Concurrency: new(4)}}
	p := c.preview(r)
	if !strings.Contains(p.Sentence, `from {} to {"concurrency":4}`) {
		t.Errorf("the preview says %q, want both limits", p.Sentence)
	}
	if err := c.conn.Control.LimitTenant(t.Context(), "acme", jobs.Limits{Queued: new(9)}); err != nil {
		t.Fatalf("LimitTenant: %v", err)
	}
	c.changed(p)
	c.confirm(c.preview(r))
	all, err := c.conn.Control.Tenants(t.Context())
	if err != nil || len(all) != 1 || *all[0].Concurrency != 4 || *all[0].Queued != 9 {
		t.Errorf("limits: %+v, %v, want both", all, err)
	}
	c.confirm(c.preview(action.Request{Action: "tenant.unlimit", Object: "acme"}))
	if all, err := c.conn.Control.Tenants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("limits: %+v, %v, want none", all, err)
	}
	for _, bad := range []action.Request{
		{Action: "tenant.unlimit", Object: "acme"},
		{Action: "tenant.limit", Object: "acme"},
		{Action: "tenant.limit", Object: "a b", Limits: r.Limits},
		{Action: "tenant.limit", Object: "acme", Limits: &jobs.Limits{Concurrency: new(-1)}},
		{Action: "none"},
	} {
		if _, err := c.op.Preview(t.Context(), bad); err == nil {
			t.Errorf("%+v has a preview, want a refusal", bad)
		}
	}
}

// TestSwarm: a snapshot has the name that the preview fixes. A deletion removes the swarm of the
// preview, and no later swarm of the name. A drain reaches the agent and shows its shards.
func TestSwarm(t *testing.T) {
	c := open(t)
	ctx := t.Context()
	dev, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "g", Device: dev, Queue: c.conn.Swarms, PageMemory: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(func() { agent.Stop() })
	began := time.Now()
	entry, err := c.conn.Registry.Announce(ctx, func() jobs.Agent {
		return jobs.Agent{
			Name: "g", Pool: jobs.PoolGPU, State: "serving", Device: "host", Started: began, Running: agent.Shards(),
			MaxShards: 8, Memory: 64 << 20, Room: &jobs.Room{Shard: 64 << 20, All: 64 << 20},
		}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("Announce: %v", err)
	}
	t.Cleanup(func() { _ = entry.Close(context.WithoutCancel(ctx)) })
	client, err := swarmclient.New(swarmclient.Options{Swarms: c.conn.Swarms})
	if err != nil {
		t.Fatalf("swarmclient.New: %v", err)
	}
	create := func() {
		t.Helper()
		spec, err := swarm.Parse("s.yaml", []byte("name: s\naddressed: agent\nagents: 256\ncell: {kind: leaky}\n"))
		if err != nil {
			t.Fatalf("swarm.Parse: %v", err)
		}
		if _, err := client.Create(ctx, spec, nil); err != nil {
			t.Fatalf("create the swarm: %v", err)
		}
	}
	create()

	save := c.preview(action.Request{Action: "swarm.snapshot", Object: "s"})
	if save.Request.Name == "" || names(save, "GPU agents that serve it") != "1[g]" || names(save,
		"neural agents") != "256[]" {
		t.Errorf("%+v, want a name, the agent and 256 neural agents", save)
	}
	if out := c.confirm(save); len(out.Entries) != 1 {
		t.Errorf("%+v, want the entry that asks for the snapshot", out)
	}

	drain := c.preview(action.Request{Action: "agent.drain", Object: "g"})
	if got := names(drain, "shards that move to other agents"); !strings.HasPrefix(got, "1[") {
		t.Errorf("shards of the agent: %s, want one", got)
	}

	remove := c.preview(action.Request{Action: "swarm.delete", Object: "s"})
	if err := client.Delete(ctx, "s", nil); err != nil {
		t.Fatalf("delete the swarm: %v", err)
	}
	create() // of the same name and size
	testkit.Until(t, "the new swarm is served", func() bool {
		p, err := c.op.Preview(ctx, action.Request{Action: "swarm.delete", Object: "s"})
		return err == nil && names(p, "GPU agents that serve it") == "1[g]"
	})
	c.changed(remove)
	c.confirm(c.preview(action.Request{Action: "swarm.delete", Object: "s"}))
	if _, err := client.Open(ctx, "s"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the swarm after its deletion: %v, want %v", err, jobs.ErrNotFound)
	}
	testkit.Until(t, "the shard is given back", func() bool {
		p, err := c.op.Preview(ctx, drain.Request)
		return err == nil && names(p, "shards that move to other agents") == "0[]"
	})
	c.changed(drain)
	c.confirm(c.preview(drain.Request))
	select {
	case <-entry.Drained():
	case <-time.After(2 * time.Minute):
		t.Error("the agent was not asked to drain")
	}
	if _, err := c.op.Preview(ctx, action.Request{Action: "agent.drain", Object: "nobody"}); !errors.Is(err,
		jobs.ErrNotFound) {
		t.Errorf("an agent that is not there: %v, want %v", err, jobs.ErrNotFound)
	}
}

// TestNoAudit: without an audit nothing is done, although the preview is right.
func TestNoAudit(t *testing.T) {
	c := open(t)
	p := c.preview(action.Request{Action: "queue.pause", Object: "gpu"})
	if err := jobstest.Raw(t, natsconn.Options{InProcess: c.server}).JS.DeleteStream(t.Context(),
		"EXO_AUDIT"); err != nil {
		t.Fatalf("DeleteStream: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.op.Confirm(ctx, me, p.Request, p.Digest); !errors.Is(err, control.ErrNotWritten) {
		t.Errorf("%v, want %v", err, control.ErrNotWritten)
	}
	if paused, err := c.conn.Control.PausedKeys(t.Context()); err != nil || len(paused) != 0 {
		t.Errorf("paused: %v, %v: an action without an audit was done", paused, err)
	}
}

// TestRoles: the server itself distinguishes operators. An action that the permissions of an
// agent's login would allow is not done either, because an agent may not write to the audit.
func TestRoles(t *testing.T) {
	f, err := auth.Open(filepath.Join(t.TempDir(), "auth"), true)
	if err != nil {
		t.Fatalf("auth.Open: %v", err)
	}
	defer f.Close()
	if _, err := f.Apply(auth.Options{Tenants: []string{"acme"}}); err != nil {
		t.Fatalf("f.Apply: %v", err)
	}
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Auth: f.ConfigFile()})
	for _, role := range []string{auth.Operator, auth.Viewer, auth.Agent, auth.GPUAgent} {
		c, err := natsq.Connect(t.Context(), natsconn.Options{
			URL: s.URL(), Login: natsconn.Login{Credentials: f.CredsFile(role)}, Name: role,
		})
		if err != nil {
			t.Fatalf("connect as %s: %v", role, err)
		}
		t.Cleanup(c.Close)
		if c.User() != role {
			t.Errorf("the user of the login is %q, want %s", c.User(), role)
		}
		op, err := action.New(action.Options{Conn: c})
		if err != nil {
			t.Fatalf("action.New: %v", err)
		}
		err = op.Check(t.Context(), me)
		if role == auth.Operator {
			if err != nil {
				t.Errorf("an operator may not act: %v", err)
			}
			j := jobstest.Job("j", "none")
			if err := c.Queue.Submit(t.Context(), j); err != nil {
				t.Fatalf("submit: %v", err)
			}
			continue
		}
		if !errors.Is(err, action.ErrNoOperator) {
			t.Errorf("%s: %v, want %v", role, err, action.ErrNoOperator)
		}
		if role != auth.Agent {
			continue
		}
		r := action.Request{Action: "job.cancel", Object: "j"}
		p, err := op.Preview(t.Context(), r)
		if err != nil {
			t.Fatalf("preview: %v", err)
		}
		if _, err := op.Confirm(t.Context(), me, r, p.Digest); !errors.Is(err, control.ErrNotWritten) {
			t.Errorf("%s acts: %v, want %v", role, err, control.ErrNotWritten)
		}
		if _, err := c.Results.Lookup(t.Context(), "j"); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("the job of a refused action: %v, want that it is not over", err)
		}
	}
}

// TestNames: all actions are listed.
func TestNames(t *testing.T) {
	if all := action.Names(); !slices.IsSorted(all) || len(all) != 10 {
		t.Errorf("%v, want 10 names in order", all)
	}
}
