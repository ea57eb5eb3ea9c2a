package auth_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestAgent: under the role of agents, logs, leases, swarms, objects and the registry work too.
func TestAgent(t *testing.T) {
	t.Parallel()
	c := start(t)
	me, operator := c.agent(t), c.connect(t, auth.Operator)
	ctx := within(t)
	l := me.Swarms.Log("s", 0, swarms.In)
	if err := l.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if err := l.Append(ctx, i, swarms.Entry{Kind: swarms.EntryObserve, Ref: i + 1, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Read(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := r.Next(ctx); err != nil || e.Ref != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	r.Close()
	if e, err := l.Last(ctx); err != nil || e.Ref != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := l.(*swarmlog.Log).Trim(ctx, 2); err != nil {
		t.Error(err)
	}
	if err := l.Delete(ctx); err != nil {
		t.Error(err)
	}
	session, err := me.Swarms.OpenSession(ctx, "h", time.Minute, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := session.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	wakes := me.Swarms.OpenWakes()
	if err := wakes.Add(ctx, "s", me.Swarms.Log("s", 0, swarms.In), 1); err != nil { // which is gone
		t.Error(err)
	}
	if key, err := wakes.Next(ctx); err != nil || key != "s" {
		t.Error(key, err)
	}
	wakes.Close()
	if err := errors.Join(lease.Release(ctx), session.Close(ctx)); err != nil {
		t.Error(err)
	}
	if err := me.Swarms.CreateSwarm(ctx, swarms.Swarm{
		Version: jobs.Version, ID: "s", Name: "s",
		Spec: json.RawMessage("{}"), Groups: 1,
	}); err != nil {
		t.Error(err)
	}
	if err := me.Swarms.RemoveSwarm(ctx, swarms.Swarm{ID: "s"}); err != nil {
		t.Error(err)
	}
	data := bytes.Repeat([]byte("y"), 300<<10) // several messages
	if _, err := me.Objects.PutObject(ctx, "o", jobs.Owner{}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	o, err := me.Objects.Object(ctx, "o", jobs.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = o.Close()
	if err := me.Objects.DeleteObject(ctx, "o", jobs.Owner{}); err != nil {
		t.Error(err)
	}
	// What is pushed, alone and as a batch, is read behind the consumer that the agent makes.
	if _, err := me.Streams.Push(ctx, "p", "k", [][]byte{[]byte("1\n")}); err != nil {
		t.Fatal(err)
	}
	if _, err := me.Streams.Push(ctx, "p", "", [][]byte{[]byte("2\n"), []byte("3\n")}); err != nil {
		t.Fatal(err)
	}
	in, err := me.Streams.Subscribe(ctx, jobs.Subscription{Push: "p", Consumer: "push-p", Keep: true, Ahead: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1\n", "2\n", "3\n"} {
		m, err := in.Next(ctx)
		if err != nil || string(m.Data) != want {
			t.Fatalf("%q, %v", m.Data, err)
		}
		in.Ack(ctx, m.Seq)
	}
	in.Close()
	// A stream of somebody else's takes what jobs publish below exo.out. Others of the account are
	// refused by the server.
	admin, _ := c.raw(t, auth.Operator)
	made := []byte(`{"name":"taken","subjects":["exo.out.>","plant.>"],"storage":"file","retention":"limits",` +
		`"discard":"old","num_replicas":1,"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0}`)
	if a, err := admin.RequestWithContext(ctx, "$JS.API.STREAM.CREATE.taken", made); err != nil ||
		bytes.Contains(a.Data, []byte(`"error"`)) {
		t.Fatalf("%s %v", a.Data, err)
	}
	if err := me.Streams.Publish(ctx, jobs.Publication{
		Stream: "taken", Subject: "exo.out.a", ID: "i",
		Data: []byte("x"),
	}); err != nil {
		t.Error(err)
	}
	if id, err := me.Streams.Published(ctx, "taken", "exo.out.a"); err != nil || id != "i" {
		t.Errorf("%q, %v", id, err)
	}
	if err := me.Streams.Publish(ctx, jobs.Publication{
		Stream: "taken", Subject: "plant.a", ID: "i",
		Data: []byte("x"),
	}); !errors.Is(err, jobs.ErrDenied) {
		t.Errorf("a subject of others: %v", err)
	}
	entry, err := me.Registry.Announce(ctx, func() jobs.Agent { return jobs.Agent{Name: "a", Pool: jobs.PoolCPU} }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Registry.DrainAgent(ctx, "a"); err != nil {
		t.Error(err)
	}
	select {
	case <-entry.Drained():
	case <-ctx.Done():
		t.Error("it does not hear that it is to drain")
	}
	if err := entry.Close(ctx); err != nil {
		t.Error(err)
	}
	// Delayed jobs, jobs of tenants with limits, and many at once, which leave the queue by a
	// purge.
	one, rate := 1, 1000.0
	if err := operator.Control.LimitTenant(ctx, "acme", jobs.Limits{Concurrency: &one, Rate: &rate}); err != nil {
		t.Fatal(err)
	}
	late := job("echo", "late")
	late.NotBefore = time.Now().Add(time.Second)
	limited := job("echo", "limited")
	limited.Tenant = "acme"
	poison := job("fail", "poison")
	for _, j := range []jobs.Job{late, limited, poison} {
		if err := operator.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	var many []jobs.Job
	for i := range 100 {
		many = append(many, job("echo", "m"+string(rune('a'+i/10))+string(rune('a'+i%10))))
	}
	if err := operator.Queue.SubmitBatch(ctx, many); err != nil {
		t.Fatal(err)
	}
	for _, j := range append(many, late, limited, poison) {
		if r, err := operator.Results.Result(ctx, j.ID); err != nil || r.Status != jobs.Done && j.Kind != "fail" {
			t.Errorf("%s: %+v, %v", j.ID, r, err)
		}
	}
	// An operator manages dead letters and may read everything.
	n := 0
	for n == 0 && ctx.Err() == nil { // the letter is there before the result is, in the end
		if err := operator.Letters.List(ctx, jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
			n++
			if err := operator.Letters.Redrive(ctx, d); err != nil {
				t.Error(err)
			}
			return false
		}); err != nil {
			t.Fatal(err)
		}
	}
	// What it must not: each is refused by the server, with a sentence.
	for what, try := range map[string]func() error{
		"pause":        func() error { return me.Control.Pause(ctx, jobs.PoolCPU, "") },
		"limit":        func() error { return me.Control.LimitTenant(ctx, "acme", jobs.Limits{Concurrency: &one}) },
		"dead letters": func() error { _, err := me.Letters.Purge(ctx, jobs.DeadFilter{}); return err },
		"drain":        func() error { return me.Registry.DrainAgent(ctx, "a") },
	} {
		if err := try(); !errors.Is(err, jobs.ErrDenied) ||
			!strings.Contains(err.Error(), `user agent (agent) may not publish to "`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
