package natsq_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func value(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// healthUnless returns the health of a worker, whose watchdog fires when sick is set.
func healthUnless(sick *atomic.Bool) func() error {
	return func() error {
		if sick.Load() {
			return errors.New("the watchdog of the device has fired")
		}
		return nil
	}
}

// TestZombie: a worker that is not healthy loses its job to another; when it wakes up and answers
// after all, its result is refused, and the refusal is counted.
func TestZombie(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	reg := prometheus.NewRegistry()
	metrics, err := natsq.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	others := prometheus.NewRegistry()
	counts, err := natsq.NewMetrics(others)
	if err != nil {
		t.Fatal(err)
	}
	hung, release := make(chan struct{}), make(chan struct{})
	var sick atomic.Bool
	zombie := work(t, jobstest.Leased(t, s, time.Second, natsq.Connect), natsq.WorkerOptions{
		Name: "zombie", Metrics: metrics,
		Healthy: healthUnless(&sick),
		Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			close(hung)
			<-release // a kernel that hangs does not check a context
			return "zombie", nil
		}},
	})
	c := jobstest.Leased(t, s, time.Second, natsq.Connect)
	if err := c.Queue.Submit(t.Context(), jobstest.Job("z", "k")); err != nil {
		t.Fatal(err)
	}
	<-hung
	slots, age := value(t, reg, "exoswarm_jobs_slots"), value(t, reg, "exoswarm_jobs_oldest_running_seconds")
	if slots < 1 || age <= 0 {
		t.Errorf("%v slots, the oldest job runs for %v s", slots, age)
	}
	sick.Store(true)
	work(t, jobstest.Leased(t, s, time.Second, natsq.Connect),
		natsq.WorkerOptions{Name: "other", Metrics: counts, Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return "other", nil },
		}})
	if r := jobstest.Await(t, c.Results, "z"); r.Worker != "other" || string(r.Output) != `"other"` || r.Attempts < 2 {
		t.Errorf("%+v", r)
	}
	close(release)
	zombie.Stop()
	if n := value(t, reg, "exoswarm_jobs_results_refused_total"); n != 1 {
		t.Errorf("%v results were refused", n)
	}
	if lost, first := value(t, reg, "exoswarm_jobs_leases_lost_total"),
		value(t, reg, "exoswarm_jobs_redelivered_total"); lost != 1 || first != 0 {
		t.Errorf("the zombie has lost %v leases, and %v of its attempts were not the first", lost, first)
	}
	if n := value(t, others, "exoswarm_jobs_redelivered_total"); n != 1 {
		t.Errorf("the other worker counts %v attempts after the first one, want 1", n)
	}
	if slots := value(t, reg, "exoswarm_jobs_slots"); slots != 0 {
		t.Errorf("a worker that has ended has %v slots", slots)
	}
	if r := jobstest.Await(t, c.Results, "z"); r.Worker != "other" {
		t.Errorf("the zombie's result stands: %+v", r)
	}
}

// TestLeaseKept: a job that runs for longer than its lease is not given to another worker.
func TestLeaseKept(t *testing.T) {
	t.Parallel()                  // it mostly waits
	const lease = 3 * time.Second // a renewal is due after a second, so a busy machine may be two late
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	var runs atomic.Int32
	h := map[string]jobs.Handler{"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
		runs.Add(1)
		select {
		case <-time.After(2*lease + lease/2): // the subject of the test
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	for range 2 {
		work(t, jobstest.Leased(t, s, lease, natsq.Connect), natsq.WorkerOptions{Name: "w", Handlers: h})
	}
	c := jobstest.Leased(t, s, lease, natsq.Connect)
	if err := c.Queue.Submit(t.Context(), jobstest.Job("l", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "l"); r.Status != jobs.Done || runs.Load() != 1 {
		t.Errorf("%d runs: %+v", runs.Load(), r)
	}
}

// TestHostile: a hostile message on a subject of the queue becomes a dead letter, and the worker
// continues.
func TestHostile(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	nc := jobstest.Raw(t, natsconn.Options{InProcess: s}).NC
	c := jobstest.Open(t, s, natsq.Connect)
	// A kind that no client of ours has submitted, so no consumer waits for it: the worker must
	// find it.
	raw := map[string]string{
		"exo.job.cpu.k.normal.default.h1": `not JSON`,
		"exo.job.cpu.k.normal.default.h2": strings.Repeat("[", 500_000),
		"exo.job.cpu.k.normal.default.h3": `{"v":99,"id":"h3"}`,
		"exo.job.cpu.k.normal.default.h4": `{"v":1,"id":"other","pool":"cpu","kind":"k","spec":1}`,
		"exo.job.cpu.k.low.default.h5":    `{"v":1,"id":"h5","pool":"cpu","kind":"k","spec":1}`,
		"exo.job.cpu.k.normal.default.h6": `{"v":1,"id":"h6","pool":"cpu","kind":"k","spec_ref":{"name":"none",` +
			`"sha256":"` + strings.Repeat("0", 64) + `","size":67108864}}`,
		"exo.job.cpu.k.normal.default.h7":  "",
		"exo.job.cpu.k.normal.default.h8!": `{"v":1}`,
		"exo.job.cpu.k.high.someone.h9": `{"v":1,"id":"h9","pool":"cpu","kind":"unheard","lane":"high",` +
			`"tenant":"someone","spec":{}}`,
		"exo.job.cpu.k.normal.default.h10": `{"v":1,"id":"h10","pool":"cpu","kind":"k","spec":1,"surprise":true}`,
		"exo.job.cpu.k.normal.default.h11": `{"v":1,"id":"h11","pool":"cpu","kind":"k","spec":1,` +
			`"deadline":"yesterday"}`,
		"exo.job.cpu.k.normal.default." + tooBig: `{}`,
	}
	for subject, data := range raw {
		if _, err := nc.Request(subject, []byte(data), time.Minute); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
	}
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"k": func(context.Context, jobs.Job, func(any)) (any, error) { return "fine", nil },
	}})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("good", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "good"); r.Status != jobs.Done {
		t.Errorf("%+v", r)
	}
	for id, want := range map[string]string{
		"h1": "not valid JSON", "h2": "nested deeper", "h3": "protocol version 99", "h4": "stands on subject",
		"h5": "the subject must be exo.job.cpu.k.normal.default.h5",
		"h6": "not in the object store", "h7": "not valid JSON", "h10": `no field "surprise"`, "h11": "yesterday",
	} {
		r := jobstest.Await(t, c.Results, id)
		if r.Status != jobs.Failed || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: %+v, want %s", id, r, want)
		}
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		n := 0
		if err := c.Letters.List(t.Context(), jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
			if d.Reason.Message == "" || d.Worker != "w" {
				t.Errorf("%+v", d)
			}
			n++
			return true
		}); err != nil {
			t.Fatal(err)
		}
		st, err := c.Queue.Stats(t.Context(), jobs.PoolCPU)
		if err != nil {
			t.Fatal(err)
		}
		if n == len(raw) && st.Jobs == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d dead letters of %d, %d jobs left", n, len(raw), st.Jobs)
		}
	}
}

// TestForgedSpec: a spec in the object store that differs from what its job names is refused, even
// if it is valid and has the same length.
func TestForgedSpec(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"k": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return j.Spec, nil },
	}})
	for id, stored := range map[string]string{
		"forged": `"oars" `, "longer": `"ours"  `, "shorter": `"our"`,
		"ours": `"ours" `,
	} {
		sum := sha256.Sum256([]byte(`"ours" `))
		name := fmt.Sprintf("spec-%s-%x", id, sum)
		if _, err := c.Objects.PutObject(t.Context(), name, jobs.Owner{}, strings.NewReader(stored)); err != nil {
			t.Fatal(err)
		}
		jobstest.Publish(t.Context(), t, s, "exo.job.cpu.k.normal.default."+id,
			fmt.Appendf(nil, `{"v":1,"id":%q,"pool":"cpu","kind":"k","spec_ref":{"name":%q,"sha256":"%x","size":7}}`,
				id, name, sum))
		r := jobstest.Await(t, c.Results, id)
		switch {
		case id == "ours" && (r.Status != jobs.Done || string(r.Output) != `"ours"`):
			t.Errorf("the spec that was put: %+v", r)
		case id != "ours" && (r.Status != jobs.Failed ||
			!strings.Contains(r.Error.Message, "is not what its reference says")):
			t.Errorf("a %s spec: %+v", id, r)
		}
	}
}

var tooBig = strings.Repeat("x", 65)

// TestQueueFull: a queue without room returns an error that a submitter can act on.
func TestQueueFull(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	st, err := js.Stream(t.Context(), "EXO_JOBS_CPU")
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.MaxMsgs = 2
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, nil, jobs.ErrFull} {
		if err := c.Queue.Submit(t.Context(), jobstest.Job([]string{"a", "b", "c"}[i], "k")); !errors.Is(err, want) {
			t.Fatalf("job %d: %v, want %v", i, err, want)
		}
	}
	if err := c.Queue.SubmitBatch(t.Context(), []jobs.Job{
		jobstest.Job("d", "k"),
		jobstest.Job("e", "k"),
	}); !errors.Is(err, jobs.ErrFull) {
		t.Fatalf("batch: %v", err)
	}
	if err := c.Queue.Submit(t.Context(), jobstest.Job("a", "k")); !errors.Is(err, jobs.ErrExists) &&
		!errors.Is(err, jobs.ErrFull) {
		t.Fatalf("a job twice: %v", err)
	}
}

// TestCrashLoop: a job that ends its workers before they can answer becomes a dead letter in the
// end.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	nc := jobstest.Raw(t, natsconn.Options{InProcess: s}).NC
	j := jobstest.Job("crash", "k")
	j.MaxAttempts = 1
	if err := c.Queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	// Deliveries that come back without a word are what the queue sees of a worker that dies.
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cons, err := js.Consumer(t.Context(), "EXO_JOBS_CPU", "k+normal+default")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := cons.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			t.Fatal(err)
		}
	}
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"k": func(context.Context, jobs.Job, func(any)) (any, error) { t.Error("it ran"); return nil, nil },
	}})
	if r := jobstest.Await(t, c.Results, "crash"); r.Status != jobs.Failed ||
		!strings.Contains(r.Error.Message, "no worker has lived to end it") {
		t.Errorf("%+v", r)
	}
}

// TestOvertaken: an attempt that another one has fenced says nothing of the job, whose lease then
// runs out: the next attempt's outcome counts.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var attempts atomic.Int32
	work(t, c, natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			if attempts.Add(1) == 1 {
				return nil, errors.Join(errors.New("append"), jobs.ErrFenced)
			}
			return "second", nil
		},
	}})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("overtaken", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "overtaken"); r.Status != jobs.Done || string(r.Output) != `"second"` {
		t.Errorf("%+v after %d attempts", r, attempts.Load())
	}
}

// TestAgents: an agent is in the registry while it announces itself, and not after.
func TestAgents(t *testing.T) {
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	a, err := jobstest.Open(t, s, natsq.Connect).Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Name: "host.example a1", Pool: jobs.PoolGPU, Kinds: []string{"k"}, Memory: 1 << 30,
			State: "serving", Started: time.Now(),
		}
	}, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Registry.Agents(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "host.example a1" || all[0].Memory != 1<<30 ||
		all[0].Seen.IsZero() {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := c.Registry.DrainAgent(t.Context(), "host.example a2"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an agent that is not there was drained: %v", err)
	}
	for range 2 {
		if err := c.Registry.DrainAgent(t.Context(), "host.example a1"); err != nil {
			t.Fatal(err)
		}
	}
	<-a.Drained()
	for range 2 {
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := c.Registry.Agents(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := c.Registry.Announce(t.Context(), func() jobs.Agent { return jobs.Agent{} },
		jobstest.Quiet); err == nil {
		t.Error("an agent without a name was taken")
	}
}
