package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSubmitter: everything that a submitter may works from end to end, without access to the
// queue.
func TestSubmitter(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.agent(t)
	me := c.client(t, "acme-submitter")
	ctx := within(t)
	id, err := me.Submit(ctx, job("echo", "j1"))
	if err != nil || id != "acme--j1" {
		t.Fatalf("%q, %v", id, err)
	}
	for _, name := range []string{"j1", id} { // both are its name
		r, err := me.Result(ctx, name)
		if err != nil || r.JobID != id || string(r.Output) != `{"x":1}` {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := me.Submit(ctx, job("echo", "j1")); !errors.Is(err, jobs.ErrExists) {
		t.Errorf("again: %v", err)
	}
	if _, err := me.Submit(ctx, jobs.Job{
		Pool: "none", Kind: "echo",
		ID: "x",
	}); jobs.AsError(err).Code != jobs.CodeInvalid {
		t.Errorf("invalid: %v", err)
	}
	child := job("echo", "child")
	child.After = []string{"parent"}
	ids, err := me.SubmitBatch(ctx, []jobs.Job{job("echo", "parent"), child})
	if err != nil || strings.Join(ids, " ") != "acme--parent acme--child" {
		t.Fatalf("%v, %v", ids, err)
	}
	if r, err := me.Result(ctx, "child"); err != nil || r.Status != jobs.Done {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := me.Submit(ctx, job("wait", "long")); err != nil {
		t.Fatal(err)
	}
	if j, err := me.Locate(ctx, "long"); err != nil || j.Tenant != "acme" || len(j.Waits) > 0 {
		t.Errorf("located %+v, %v; want a job of acme that waits for none", j, err)
	}
	if _, err := me.Lookup(ctx, "long"); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := me.Cancel(ctx, "long", false); err != nil {
		t.Fatal(err)
	}
	if r, err := me.Result(ctx, "long"); err != nil || r.Error == nil || r.Error.Code != jobs.CodeCanceled {
		t.Errorf("%+v, %v", r, err)
	}
	large := job("echo", "large") // its spec goes through the object store
	large.Spec = json.RawMessage(`"` + strings.Repeat("x", jobs.MaxInline+1) + `"`)
	if _, err := me.Submit(ctx, large); err != nil {
		t.Fatal(err)
	}
	if r, err := me.Result(ctx, "large"); err != nil || len(r.Output) != len(large.Spec) {
		t.Errorf("%d bytes, %v", len(r.Output), err)
	}
	nightly := jobs.Schedule{
		Version: jobs.Version, Name: "nightly", Cron: "0 2 * * *",
		Job: jobs.Job{Pool: jobs.PoolCPU, Kind: "echo", Spec: json.RawMessage("1")},
	}
	if err := me.AddSchedule(ctx, nightly); err != nil {
		t.Fatal(err)
	}
	if err := me.PauseSchedule(ctx, "nightly", true); err != nil {
		t.Error(err)
	}
	if all, err := me.Schedules(ctx); err != nil || len(all) != 1 || all[0].Name != "acme--nightly" || !all[0].Paused ||
		all[0].Job.Tenant != "acme" {
		t.Errorf("%+v, %v", all, err)
	}
	other := c.client(t, "umbrella-submitter")
	if all, err := other.Schedules(ctx); err != nil || len(all) != 0 {
		t.Errorf("another's schedules: %+v, %v", all, err)
	}
	sees := func(c *gateway.Client, p jobs.Pool) (ids []string) {
		t.Helper()
		if err := c.List(ctx, p, func(j queue.ListedJob) bool { ids = append(ids, j.ID); return true }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if _, err := me.Submit(ctx, job("wait", "listed")); err != nil {
		t.Fatal(err)
	}
	behind := job("echo", "behind")
	behind.After = []string{"listed"}
	if _, err := me.Submit(ctx, behind); err != nil {
		t.Fatal(err)
	}
	// Done jobs are taken out of the queue some time after their results.
	for ids := sees(me, jobs.PoolCPU); strings.Join(ids, " ") != "acme--listed acme--behind"; ids = sees(me,
		jobs.PoolCPU) {
		if ctx.Err() != nil {
			t.Fatalf("my jobs: %q", ids)
		}
	}
	if ids := sees(other, jobs.PoolCPU); len(ids) > 0 {
		t.Errorf("another's jobs: %q", ids)
	}
	if ids := sees(me, jobs.PoolGPU); len(ids) > 0 {
		t.Errorf("jobs of the other pool: %q", ids)
	}
	if _, err := me.Submit(ctx, job("fail", "dead")); err != nil {
		t.Fatal(err)
	}
	if r, err := me.Result(ctx, "dead"); err != nil || r.Status != jobs.Failed {
		t.Errorf("%+v, %v", r, err)
	}
	operator := c.connect(t, auth.Operator)
	letters := func() (n int) {
		t.Helper()
		if err := operator.Letters.List(ctx, jobs.DeadFilter{ID: "acme--dead"},
			func(jobs.DeadLetter) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for letters() == 0 { // it comes behind the result
		if ctx.Err() != nil {
			t.Fatal("no dead letter")
		}
	}
	logged := 0
	for logged == 0 && ctx.Err() == nil { // a worker stores them in turns
		if err := me.Logs(ctx, "j1", false, func(l jobs.LogLines) error {
			logged += len(l.Lines)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// What another tenant tries, each by itself. It reaches its own ids only.
	spy := job("echo", "spy")
	spy.Tenant = "acme"
	after := job("echo", "after")
	after.After = []string{"acme--j1"}
	object := job("echo", "object")
	object.Spec, object.SpecRef = nil, &jobs.ObjectRef{Name: "o", SHA256: strings.Repeat("0", 64), Size: 1}
	for what, try := range map[string]func() error{
		"submit for another": func() error { _, err := other.Submit(ctx, spy); return err },
		"wait for another's": func() error { _, err := other.Submit(ctx, after); return err },
		"name an object":     func() error { _, err := other.Submit(ctx, object); return err },
		"read a result":      func() error { _, err := other.Lookup(ctx, "acme--j1"); return err },
		"find a job":         func() error { _, err := other.Locate(ctx, "acme--long"); return err },
		"read a log": func() error {
			return other.Logs(ctx, "acme--j1", false,
				func(jobs.LogLines) error { return nil })
		},
		"follow a log": func() error {
			return other.Logs(ctx, "acme--listed", true,
				func(jobs.LogLines) error { return nil })
		},
		"retry a job": func() error { return other.Retry(ctx, "acme--dead") },
		"list no pool": func() error {
			return other.List(ctx, "acme",
				func(queue.ListedJob) bool { return true })
		},
		"cancel a job":      func() error { return other.Cancel(ctx, "acme--j1", false) },
		"remove a schedule": func() error { return other.RemoveSchedule(ctx, "acme--nightly") },
		"pause a schedule":  func() error { return other.PauseSchedule(ctx, "acme--nightly", true) },
		"resume a schedule": func() error { return other.PauseSchedule(ctx, "acme--nightly", false) },
		"schedule for others": func() error {
			s := nightly
			s.Name, s.Job.Tenant = "n",
				"acme"
			return other.AddSchedule(ctx, s)
		},
	} {
		if err := try(); err == nil || errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := letters(); n != 1 {
		t.Errorf("%d dead letters: another tenant has touched it", n)
	}
	if err := me.Retry(ctx, "dead"); err != nil {
		t.Error(err)
	}
	if r, err := me.Watch(ctx, "dead", func(json.RawMessage) {}); err != nil || r.Status != jobs.Failed {
		t.Errorf("%+v, %v", r, err)
	}
	if err := me.Retry(ctx, "j1"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job that was done: %v", err)
	}
	if err := me.Cancel(ctx, "listed", false); err != nil {
		t.Error(err)
	}
	// The same id is another job: a tenant cannot take another tenant's id.
	if id, err := other.Submit(ctx, job("echo", "acme--later")); err != nil || id != "umbrella--acme--later" {
		t.Errorf("%q, %v", id, err)
	}
	if id, err := me.Submit(ctx, job("echo", "later")); err != nil || id != "acme--later" {
		t.Errorf("%q, %v", id, err)
	}
	if err := me.RemoveSchedule(ctx, "nightly"); err != nil {
		t.Error(err)
	}
}

// TestViewer: a viewer sees everything, and what it must not do fails at once, with a sentence that
// says so.
func TestViewer(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.agent(t)
	operator, me := c.connect(t, auth.Operator), c.connect(t, auth.Viewer)
	ctx := within(t)
	entry, err := operator.Registry.Announce(ctx, func() jobs.Agent {
		return jobs.Agent{Name: "a", Pool: jobs.PoolCPU}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = entry.Close(t.Context()) }()
	weight := 2.0
	if err := operator.Control.LimitTenant(ctx, "acme", jobs.Limits{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	if err := operator.Schedules.AddSchedule(ctx, jobs.Schedule{
		Version: jobs.Version, Name: "n", Cron: "0 0 1 1 *",
		Job: jobs.Job{Pool: jobs.PoolCPU, Kind: "echo", Spec: json.RawMessage("1")},
	}); err != nil {
		t.Fatal(err)
	}
	if err := operator.Control.Pause(ctx, jobs.PoolGPU, ""); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	stop, err := me.Results.Progress("seen", func(p json.RawMessage) { told <- string(p) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// The subscription is the server's before the job is: both are asked on one connection after
	// the other.
	if _, err := me.Queue.Find(ctx, "seen"); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	for _, j := range []jobs.Job{job("echo", "seen"), job("fail", "dead"), job("wait", "long")} {
		if err := operator.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := me.Results.Result(ctx, "seen"); err != nil || string(r.Output) != `{"x":1}` {
		t.Errorf("%+v, %v", r, err)
	}
	said := false
	for !said && ctx.Err() == nil { // a worker stores them in turns
		if err := me.Logs.Logs(ctx, "seen", true, func(l jobs.LogLines) error {
			said = said || len(l.Lines) == 1
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := me.Results.Result(ctx, "dead"); err != nil || r.Status != jobs.Failed {
		t.Errorf("%+v, %v", r, err)
	}
	select {
	case <-told:
	case <-ctx.Done():
		t.Error("no progress")
	}
	if j, err := me.Queue.Find(ctx, "long"); err != nil || j.ID != "long" {
		t.Errorf("%+v, %v", j, err)
	}
	n := 0
	if err := me.Queue.Jobs(ctx, jobs.PoolCPU, func(jobs.Job) bool { n++; return true }); err != nil || n == 0 {
		t.Errorf("%d jobs, %v", n, err)
	}
	n = 0
	if err := me.Letters.List(ctx, jobs.DeadFilter{},
		func(jobs.DeadLetter) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%d dead letters, %v", n, err)
	}
	// A long log is read although a viewer may make no consumer.
	log := operator.Swarms.Log("s", 0, swarms.In)
	if err := log.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(100) {
		tick := swarms.Entry{Kind: swarms.EntryTick, Ref: seq + 1, Data: []byte("x")}
		if err := log.Append(ctx, seq, tick); err != nil {
			t.Fatal(err)
		}
	}
	first, last, err := me.Swarms.Bounds(ctx, "s", 0, swarms.In)
	if err != nil || first != 1 || last != 100 {
		t.Errorf("the log has the entries %d to %d, %v", first, last, err)
	}
	scan, err := me.Swarms.Scan(ctx, "s", 0, swarms.In, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(100) {
		if e, err := scan.Next(ctx); err != nil || e.Seq != seq+1 {
			t.Fatalf("entry %d of the log: %+v, %v", seq+1, e, err)
		}
	}
	scan.Close()
	// Both kinds of agent answer a viewer, and the worker tells it what it runs.
	for _, role := range []string{auth.Agent, auth.GPUAgent} {
		silent, err := c.connect(t, role).Telemetry.Answer(role, func(names []string) []jobs.Sample {
			return []jobs.Sample{{Name: names[0], Value: 7}}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer silent()
	}
	var numbers map[string]jobs.Telemetry
	for len(numbers) < 2 && ctx.Err() == nil { // the server may hear of their subscriptions later
		look, cancel := context.WithTimeout(ctx, time.Second)
		if numbers, err = me.Telemetry.Ask(look, []string{"x"}, []string{auth.Agent, auth.GPUAgent}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	for _, role := range []string{auth.Agent, auth.GPUAgent} {
		if s := numbers[role].Samples; len(s) != 1 || s[0].Value != 7 {
			t.Errorf("%s answers a viewer's question for numbers with %v, want one sample of 7", role, s)
		}
	}
	if s, err := me.Queue.Stats(ctx, jobs.PoolGPU); err != nil || !s.Paused {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := me.Queue.Stats(ctx, jobs.PoolCPU); err != nil || len(s.Sources) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if all, err := me.Registry.Agents(ctx); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := me.Control.Tenants(ctx); err != nil || len(all) != 1 || *all[0].Weight != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := me.Schedules.Schedules(ctx); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if plan, err := me.Plan(ctx); err != nil || len(plan) != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	for what, try := range map[string]func() error{
		"submit": func() error { return me.Queue.Submit(ctx, job("echo", "x")) },
		"submit many": func() error {
			return me.Queue.SubmitBatch(ctx,
				[]jobs.Job{job("echo", "x"), job("echo", "y")})
		},
		"cancel":   func() error { return me.Queue.Cancel(ctx, job("wait", "long"), false) },
		"withdraw": func() error { return me.Queue.Withdraw(ctx, job("wait", "long")) },
		"pause":    func() error { return me.Control.Pause(ctx, jobs.PoolCPU, "") },
		"limit":    func() error { return me.Control.LimitTenant(ctx, "acme", jobs.Limits{Weight: &weight}) },
		"unlimit":  func() error { return me.Control.UnlimitTenant(ctx, "acme") },
		"schedule": func() error { return me.Schedules.RemoveSchedule(ctx, "n") },
		"redrive": func() error {
			return me.Letters.Redrive(ctx, jobs.DeadLetter{ID: "dead", Data: mustJSON(t, job("fail", "dead"))})
		},
		"purge": func() error { _, err := me.Letters.Purge(ctx, jobs.DeadFilter{}); return err },
		"drain": func() error { return me.Registry.DrainAgent(ctx, "a") },
		"hold a model": func() error {
			_, err := me.Telemetry.ChangeModel(ctx, "a", telemetry.ModelChange{Do: telemetry.HoldModel})
			return err
		},
		"put object": func() error {
			_, err := me.Objects.PutObject(ctx, "o", jobs.Owner{}, strings.NewReader("x"))
			return err
		},
		"put a pipe": func() error {
			_, err := me.Objects.PutObject(ctx, "o", jobs.Owner{}, io.MultiReader(strings.NewReader("x")))
			return err
		},
		"make a log":   func() error { return me.Swarms.Log("s", 0, swarms.In).Create(ctx) },
		"delete a log": func() error { return me.Swarms.Log("s", 0, swarms.In).Delete(ctx) },
		"lease":        func() error { _, err := me.Swarms.OpenSession(ctx, "h", time.Second, nil); return err },
		"work": func() error {
			w, err := me.Work(ctx, natsq.WorkerOptions{Name: "w", Pool: jobs.PoolCPU})
			if err == nil {
				w.Stop()
			}
			return err
		},
		"announce": func() error {
			_, err := me.Registry.Announce(ctx, func() jobs.Agent { return jobs.Agent{Name: "v"} }, nil)
			return err
		},
	} {
		if err := try(); !errors.Is(err, jobs.ErrDenied) ||
			!strings.Contains(err.Error(), `user viewer (viewer) may not publish to "`) ||
			!strings.Contains(err.Error(), "another role") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n, err := operator.Letters.Purge(ctx, jobs.DeadFilter{}); err != nil || n != 1 {
		t.Errorf("the dead letter is gone: %d, %v", n, err)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
