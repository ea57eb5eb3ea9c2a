package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestGPUAgentJobs: under its role a GPU agent executes jobs of pool gpu from end to end: small and
// large specifications, objects, failures, cancellations and limits.
func TestGPUAgentJobs(t *testing.T) {
	t.Parallel()
	c := start(t)
	operator, me := c.connect(t, auth.Operator), c.connect(t, auth.GPUAgent)
	ctx := within(t)
	if err := operator.Control.LimitTenant(ctx, "acme", jobs.Limits{Concurrency: new(1)}); err != nil {
		t.Fatalf("LimitTenant: %v", err)
	}
	begun := make(chan struct{}, 1)
	w, err := me.Work(ctx, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolGPU, Logger: jobstest.Quiet, JobsOnly: true,
		Handlers: map[string]jobs.Handler{
			"copy": func(ctx context.Context, j jobs.Job, progress func(any)) (any, error) {
				progress("begun")
				jobs.Logger(ctx).Info("copying")
				of := jobs.OwnerOf(j)
				for range 2 { // the second time in place of the first object
					if _, err := me.Objects.PutObject(ctx, "copied", of, strings.NewReader("data")); err != nil {
						return nil, err
					}
				}
				r, err := me.Objects.Object(ctx, "copied", of)
				if err != nil {
					return nil, err
				}
				defer r.Close()
				data, err := io.ReadAll(r)
				return string(data), err
			},
			"fail": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "as it is meant to")
			},
			"wait": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				begun <- struct{}{}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
		},
	})
	if err != nil {
		t.Fatalf("Work: %v", err)
	}
	t.Cleanup(w.Stop)
	do := func(kind, id string, spec string) jobs.Result {
		t.Helper()
		j := job(kind, id)
		j.Pool, j.Tenant, j.Spec = jobs.PoolGPU, "acme", []byte(spec)
		if err := operator.Queue.Submit(ctx, j); err != nil {
			t.Fatalf("submit %s: %v", id, err)
		}
		if kind == "wait" {
			<-begun
			if err := operator.Queue.Cancel(ctx, j, false); err != nil {
				t.Fatalf("cancel %s: %v", id, err)
			}
		}
		r, err := operator.Results.Result(ctx, id)
		if err != nil {
			t.Fatalf("result of %s: %v", id, err)
		}
		return r
	}
	for id, spec := range map[string]string{"small": "1", "large": `"` + strings.Repeat("x", jobs.MaxInline+1) + `"`} {
		if r := do("copy", id, spec); string(r.Output) != `"data"` {
			t.Errorf("%s: %+v, %v", id, r, r.Error)
		}
	}
	// A CPU agent makes the stream of a level, and a GPU agent reads it.
	inMemory := job("copy", "memory").WithLevel(jobs.LevelMemory)
	inMemory.Pool, inMemory.Tenant = jobs.PoolGPU, "acme"
	if err := c.agent(t).Queue.Submit(ctx, inMemory); err != nil {
		t.Errorf("submit in memory: %v", err)
	} else if r, err := operator.Results.Result(ctx, "memory"); err != nil || string(r.Output) != `"data"` {
		t.Errorf("memory: %+v, %v", r, err)
	}
	if s, err := operator.JS.Stream(ctx, "EXO_JOBS_GPU_MEMORY"); err != nil || s.CachedInfo().State.LastSeq != 1 {
		t.Errorf("the stream of the level: %+v, %v", s, err)
	}
	if r := do("fail", "failed", "1"); r.Error == nil || r.Error.Code != jobs.CodeInput {
		t.Errorf("failed: %+v", r)
	}
	if r := do("wait", "cancelled", "1"); r.Error == nil || r.Error.Code != jobs.CodeCanceled {
		t.Errorf("cancelled: %+v", r)
	}
	// The dead letter comes behind the result.
	for dead := false; !dead && ctx.Err() == nil; {
		if err := operator.Letters.List(ctx, jobs.DeadFilter{ID: "failed"}, func(jobs.DeadLetter) bool {
			dead = true
			return false
		}); err != nil {
			t.Fatalf("dead letters: %v", err)
		}
	}
}

// TestGPUAgentDenied asks the server itself: what a GPU agent does not need is refused.
func TestGPUAgentDenied(t *testing.T) {
	t.Parallel()
	c := start(t)
	nc, said := c.raw(t, auth.GPUAgent)
	publish := []string{
		"exo.job.gpu.copy.normal.acme.x", "exo.job.cpu.echo.normal.acme.x", "exo.sched.gpu.copy.normal.acme.x",
		"exo.wait.gpu.copy.normal.acme.x", "exo.dead.cpu.echo.acme.x", "exo.push.x", "exo.out.x", "exo.rows.x",
		"exo.api.submit", "exo.agent.drain.a", "exo.done.x", "$KV.EXO_TENANTS.cpu.acme", "$KV.EXO_CANCEL.x",
		"$KV.EXO_CONTROL.pause.gpu", "$KV.EXO_CRON.n", "$SYS.REQ.SERVER.PING",
		"$JS.API.CONSUMER.DELETE.EXO_JOBS_GPU.c",
	}
	for _, stream := range []string{
		"EXO_JOBS_CPU", "EXO_JOBS_CPU_MEMORY", "EXO_DEAD", "EXO_SCHED", "EXO_WAIT", "EXO_PUSH", "KV_EXO_CRON",
	} {
		for _, ask := range []string{
			"CONSUMER.CREATE." + stream + ".c", "CONSUMER.MSG.NEXT." + stream + ".c", "DIRECT.GET." + stream,
			"STREAM.MSG.GET." + stream, "STREAM.PURGE." + stream,
		} {
			publish = append(publish, "$JS.API."+ask)
		}
	}
	publish = append(publish, "$JS.API.CONSUMER.CREATE.EXO_RESULTS.c", "$JS.API.STREAM.PURGE.EXO_RESULTS",
		"$JS.API.STREAM.PURGE.KV_EXO_TENANTS", "$JS.API.STREAM.DELETE.EXO_JOBS_GPU",
		"$JS.API.STREAM.CREATE.EXO_JOBS_GPU_MEMORY", "$JS.API.CONSUMER.DELETE.EXO_JOBS_GPU_MEMORY.c")
	got := refusals(t, nc, said, publish, func(s string) error { return nc.Publish(s, nil) })
	for _, s := range publish {
		if !slices.Contains(got, s) {
			t.Errorf("may publish to %s", s)
		}
	}
	subscribe := []string{
		">", "_INBOX.>", "exo.>", "exo.job.>", "exo.res.*", "exo.wake.>", "exo.wake.cpu.>", "exo.running.cpu",
		"exo.progress.*", "exo.api.>", "$KV.>",
	}
	got = refusals(t, nc, said, subscribe, func(s string) error { _, err := nc.SubscribeSync(s); return err })
	for _, s := range subscribe {
		if !slices.Contains(got, s) {
			t.Errorf("may subscribe to %s", s)
		}
	}
}

// TestGPUAgentEmits: under its role a GPU agent emits decisions, each once, and a CPU agent may
// not.
func TestGPUAgentEmits(t *testing.T) {
	t.Parallel()
	c := start(t)
	operator, me, other := c.connect(t, auth.Operator), c.connect(t, auth.GPUAgent), c.connect(t, auth.Agent)
	ctx := within(t)
	e := swarms.Emission{Version: jobs.Version, Swarm: "s", Identity: "s@1", Name: "news", Rule: 1, Entry: 1, Round: 1}
	for range 2 {
		if err := gateway.NewEmissions(me.Conn).Emit(ctx, "s", e); err != nil {
			t.Fatalf("Emit: %v", err)
		}
	}
	e.Entry = 2
	if err := gateway.NewEmissions(other.Conn).Emit(ctx, "s", e); !errors.Is(err, jobs.ErrDenied) {
		t.Errorf("a CPU agent emits: error %v, want ErrDenied", err)
	}
	n := 0
	count := func(gateway.StoredEmission) bool { n++; return true }
	if err := gateway.NewEmissions(operator.Conn).List(ctx, "s", "", 0, count); err != nil || n != 1 {
		t.Errorf("List: %d emissions, error %v, want 1", n, err)
	}
}

// TestGPUAgentReacts: under its role a GPU agent asks a gateway, which has the role of a CPU agent,
// for the job of a rule, and gets the one of the record for its tenant, once. It submits no other
// job, and a tenant and a CPU agent ask for none.
func TestGPUAgentReacts(t *testing.T) {
	t.Parallel()
	c := start(t)
	operator, me, other := c.connect(t, auth.Operator), c.connect(t, auth.GPUAgent), c.connect(t, auth.Agent)
	ctx := within(t)
	g, err := gateway.Serve(other.Conn, other.Queue, other.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	defer g.Close()
	s := swarms.Swarm{
		Version: jobs.Version, ID: "s", Name: "s", Nonce: swarms.NewNonce(), Groups: 1,
		Spec: []byte(`{"jobs":{"page":{"pool":"cpu","kind":"k","tenant":"acme","spec":"$(round)"}}}`),
	}
	if err := operator.Swarms.CreateSwarm(ctx, s); err != nil {
		t.Fatalf("CreateSwarm: %v", err)
	}
	e := swarms.Emission{
		Version: jobs.Version, Swarm: "s", Identity: s.Identity(), Name: "page", Rule: 1, Entry: 1, Round: 1,
		Winner: "none",
	}
	for range 2 {
		if err := gateway.NewRules(me.Conn).Submit(ctx, e); err != nil {
			t.Fatalf("Submit: %v", err)
		}
	}
	own := c.client(t, "acme-submitter") // a login of the tenant sees the job
	n := 0
	if err := own.List(ctx, jobs.PoolCPU, func(j queue.ListedJob) bool {
		if n++; j.ID != s.JobID("acme", "page", 1, 1) || string(j.Spec) != `"1"` {
			t.Errorf("job %s, spec %s", j.ID, j.Spec)
		}
		return true
	}); err != nil || n != 1 {
		t.Errorf("List: %d jobs, error %v, want 1", n, err)
	}
	e.Entry = 2
	if err := gateway.NewRules(other.Conn).Submit(ctx, e); !errors.Is(err, jobs.ErrDenied) {
		t.Errorf("a CPU agent asks for the job of a rule: error %v, want ErrDenied", err)
	}
	if err := gateway.NewSubmissions(me.Conn, me.Queue, me.Swarms).Submit(ctx, e); !errors.Is(err, jobs.ErrDenied) {
		t.Errorf("a GPU agent submits without a gateway: error %v, want ErrDenied", err)
	}
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	nc, said := c.raw(t, "acme-submitter")
	if got := refusals(t, nc, said, []string{"exo.api.react"}, func(s string) error {
		return nc.Publish(s, data)
	}); !slices.Contains(got, "exo.api.react") {
		t.Error("a tenant asks for the job of a rule")
	}
	if err := operator.Swarms.RemoveSwarm(ctx, s); err != nil {
		t.Errorf("RemoveSwarm: %v", err)
	}
}
