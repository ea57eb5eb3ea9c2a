package objects_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// states lists the objects.
func states(t *testing.T, c *natsq.Conn) map[string]objects.State {
	t.Helper()
	all := map[string]objects.State{}
	if err := c.Objects.Objects(t.Context(), func(o objects.Object) bool {
		all[o.Name] = o.State
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestObjectsLive: an object stays while anything is known of its job, whatever that is, and goes
// when the last is gone. What belongs to no job stays.
func TestObjectsLive(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	ctx := t.Context()
	put := func(name string, of jobs.Owner) {
		t.Helper()
		if _, err := c.Objects.PutObject(ctx, name, of, strings.NewReader(strings.Repeat("x", 200<<10))); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"queued", "delayed", "parent", "waiting", "result", "letter", "swarm", "gone"} {
		put("of-"+id, jobs.Owner{Job: id})
	}
	put("mine", jobs.Owner{})
	put("input-gone-12", jobs.Owner{}) // as an earlier version stored it
	put("theirs", jobs.Owner{Tenant: "acme", Job: "gone"})
	job := func(id string) jobs.Job {
		return jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "none", Spec: []byte("1"),
			Submitted: time.Now().UTC(),
		}
	}
	late := job("delayed")
	late.NotBefore = time.Now().Add(time.Hour)
	child := job("waiting")
	child.After = []string{"parent"}
	dead := job("letter")
	dead.Kind = "fail"
	short := job("result")
	short.Kind, short.ResultTTL = "echo", 2
	for _, j := range []jobs.Job{job("queued"), late, job("parent"), child, dead, short} {
		if err := c.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	w := jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Handlers: map[string]jobs.Handler{
			"echo": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return j.Spec, nil },
			"fail": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "as meant")
			},
		},
	})
	for _, id := range []string{"letter", "result"} {
		if _, err := c.Results.Result(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n == 0; {
		if err := c.Letters.List(ctx, jobs.DeadFilter{ID: "letter"},
			func(jobs.DeadLetter) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	swarm := swarms.Swarm{
		Version: jobs.Version, ID: "swarm", Name: "s", Spec: json.RawMessage("{}"), Groups: 1,
		Created: time.Now().UTC(), Nonce: swarms.NewNonce(),
	}
	if err := c.Swarms.CreateSwarm(ctx, swarm); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]objects.State{
		"of-queued": objects.Kept, "of-delayed": objects.Kept, "of-parent": objects.Kept, "of-waiting": objects.Kept,
		"of-letter": objects.Kept,
		"of-swarm":  objects.Kept, "of-gone": objects.Orphaned, "mine": objects.Unowned,
		"input-gone-12": objects.Orphaned, "acme/theirs": objects.Orphaned,
	} {
		if got := states(t, c)[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// A broken upload has contents and no description.
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	if _, err := js.Publish(ctx, "$O.EXO_OBJECTS.C.broken", []byte("half")); err != nil {
		t.Fatal(err)
	}
	var swept []string
	sweep := func(grace time.Duration, dry bool) string {
		t.Helper()
		swept = nil
		if err := c.Objects.SweepObjects(ctx, grace, dry,
			func(o objects.Object) { swept = append(swept, o.Name) }); err != nil {
			t.Fatal(err)
		}
		return strings.Join(swept, " ")
	}
	if got := sweep(time.Hour, false); got != "" {
		t.Errorf("within the grace time %s go", got)
	}
	if got := sweep(0, true); !strings.Contains(got, "of-gone") || len(states(t, c)) != 11 {
		t.Errorf("a dry sweep shows %s, and leaves %v", got, states(t, c))
	}
	// When the swarm, the dead letter and the result go, their objects go too. Agents may sweep
	// concurrently.
	if err := c.Swarms.RemoveSwarm(ctx, swarm); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Letters.Purge(ctx, jobs.DeadFilter{}); err != nil {
		t.Fatal(err)
	}
	run, end := context.WithCancel(ctx)
	ended := make(chan struct{}, 2)
	for range 2 {
		agent := jobstest.Open(t, s, natsq.Connect)
		go func() {
			agent.Objects.KeepObjects(run, 300*time.Millisecond, slog.New(slog.DiscardHandler))
			ended <- struct{}{}
		}()
	}
	testkit.Until(t, "six objects are left", func() bool { // the failed result of letter is there for a day
		return len(states(t, c)) == 6
	})
	end()
	<-ended
	<-ended
	left := states(t, c)
	for _, name := range []string{"of-queued", "of-delayed", "of-parent", "of-waiting", "of-letter", "mine"} {
		if left[name] == "" {
			t.Errorf("%s is gone: %v", name, left)
		}
	}
	if info, err := js.Stream(ctx, "OBJ_EXO_OBJECTS"); err != nil {
		t.Error(err)
	} else if i, err := info.Info(ctx, jetstream.WithSubjectFilter(">")); err != nil ||
		i.State.Subjects["$O.EXO_OBJECTS.C.broken"] != 0 || len(i.State.Subjects) != 2*len(left) {
		t.Errorf("the store holds more than the objects: %v, %v", i.State.Subjects, err)
	}
}

// TestObjectsOfTenants: objects of tenants are apart.
func TestObjectsOfTenants(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	ctx := t.Context()
	of := jobs.Owner{Tenant: "acme", Job: "j"}
	if _, err := c.Objects.PutObject(ctx, "o", of, strings.NewReader("mine")); err != nil {
		t.Fatal(err)
	}
	// Nobody else reads it by that name, nor writes over it.
	for _, other := range []jobs.Owner{{}, {Tenant: jobs.DefaultTenant}, {Tenant: "umbrella"}} {
		if _, err := c.Objects.Object(ctx, "o", other); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%+v reads the object of a tenant: %v", other, err)
		}
		if _, err := c.Objects.PutObject(ctx, "o", other, strings.NewReader("other")); err != nil {
			t.Fatal(err)
		}
		if err := c.Objects.DeleteObject(ctx, "o", other); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Objects.Object(ctx, "o", of)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "mine" {
		t.Errorf("%s, %v", data, err)
	}
	_ = r.Close()
}

// TestSpecOutlives: a job of a large spec that is delayed for longer than any age of the store has
// its spec. An age of an earlier version goes with init.
func TestSpecOutlives(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	if _, err := js.CreateObjectStore(t.Context(),
		jetstream.ObjectStoreConfig{Bucket: "EXO_OBJECTS", TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	c := jobstest.Open(t, s, natsq.Connect)
	if _, err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(strings.Repeat("x", jobs.MaxInline))
	if err != nil {
		t.Fatal(err)
	}
	j := jobs.Job{
		Version: jobs.Version, ID: "large", Pool: jobs.PoolCPU, Kind: "echo", Spec: spec,
		Submitted: time.Now().UTC(), NotBefore: time.Now().Add(3 * time.Second),
	}
	if err := c.Queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w",
		Handlers: map[string]jobs.Handler{
			"echo": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return len(j.Spec), nil },
		},
	})
	if r, err := c.Results.Result(t.Context(), "large"); err != nil || r.Status != jobs.Done {
		t.Errorf("%+v, %v", r, err)
	}
}
