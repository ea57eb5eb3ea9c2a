package detectors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	observe "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestMain(m *testing.M) { testkit.CheckLeaksParallel(m, 4) }

// cluster is a server with a GPU agent, and CPU agents that a test starts.
type cluster struct {
	srv  *server.Server
	conn *natsq.Conn
	all  *detectors.Detectors
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := &cluster{srv: srv}
	c.conn = c.connect(t)
	c.all = detectors.New(c.conn)
	quiet := slog.New(slog.DiscardHandler)
	dev, err := host.Open(host.Options{Logger: quiet, Requested: "host", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu", Device: dev, Queue: c.connect(t).Swarms, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drain(t, agent.Drain) })
	return c
}

func (c *cluster) connect(t *testing.T) *natsq.Conn {
	t.Helper()
	conn, err := natsq.Connect(t.Context(), natsconn.Options{
		InProcess: c.srv, Name: "test", Lease: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func drain(t *testing.T, fn func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fn(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
}

// cpuAgent starts a worker for detectors, and returns the function that drains it.
func (c *cluster) cpuAgent(t *testing.T, name string) (end func()) {
	t.Helper()
	conn, quiet := c.connect(t), slog.New(slog.DiscardHandler)
	f, err := files.New(files.Options{Objects: conn.Objects, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	guard, err := access.NewGuard([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := cpuagents.New(cpuagents.Options{Queue: conn.StreamJobs(), Files: f, Logger: quiet, Egress: guard})
	if err != nil {
		t.Fatal(err)
	}
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: name, Pool: jobs.PoolCPU, Concurrency: 2, Logger: quiet,
		Handlers: map[string]jobs.Handler{cpuagents.KindDetector: s.HandleDetector},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			drain(t, w.Drain)
		}
	}
	t.Cleanup(end)
	return end
}

func spec(t *testing.T, name, sinkURI string) cpuagents.DetectorSpec {
	t.Helper()
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: "+name+"\nagents_per_group: 16\nkey: id\nmax_entities: 8\n"))
	if err != nil {
		t.Fatal(err)
	}
	sources := []source.Series{{Name: "p", URI: "push:" + name}}
	s, err := detectors.Spec(parsed, sources, []sink.Spec{{URI: sinkURI}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *cluster) push(t *testing.T, name string, from, to int) {
	t.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"timestamp\":%d,\"value\":1,\"id\":%d}\n", 1700000000+i, i%4)
	}
	if _, err := c.conn.Streams.Push(t.Context(), name, "", [][]byte{[]byte(b.String())}); err != nil {
		t.Fatal(err)
	}
}

// await waits until the detector is as fn wants it.
func (c *cluster) await(t *testing.T, name, what string, fn func(detectors.Detector) bool) detectors.Detector {
	t.Helper()
	var d detectors.Detector
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: the detector is %+v, counts %+v", what, d, d.Counts)
		}
	})
	testkit.Until(t, what, func() bool {
		var err error
		if d, err = c.all.Get(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		return fn(d)
	})
	return d
}

// explained checks why a detector does not progress.
func (c *cluster) explained(t *testing.T, name string, want doctor.Cause) {
	t.Helper()
	r, err := detectors.Explain(t.Context(), c.conn, name)
	if err != nil || r.Cause != want {
		t.Errorf("the reason of detector %s is %+v, %v, want %s", name, r, err, want)
	}
}

func counted(n uint64) func(detectors.Detector) bool {
	return func(d detectors.Detector) bool { return d.Counts != nil && d.Counts.Decisions >= n }
}

// decided returns how many decisions a subject has of each time.
func decided(t *testing.T, out jetstream.Stream, subject string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	info, err := out.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := out.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != subject {
			continue
		}
		for line := range strings.Lines(string(m.Data)) {
			var row struct{ Timestamp string }
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			seen[row.Timestamp]++
		}
	}
	return seen
}

// TestDetector: a detector starts after it is created. After a pause, or with another agent, it
// continues where it stopped. It sends each decision once, and leaves nothing when it is deleted.
func TestDetector(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	js := c.conn.JS
	out, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	if err != nil {
		t.Fatal(err)
	}
	end := c.cpuAgent(t, "one")
	s := spec(t, "plant", "nats:OUT/out.plant")
	if err := c.all.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	err = c.all.Create(t.Context(), s)
	if !errors.Is(err, jobs.ErrExists) && jobs.AsError(err).Code != jobs.CodeInvalid {
		t.Errorf("created twice: %v", err)
	}
	c.push(t, "plant", 0, 100)
	d := c.await(t, "plant", "the first rows", counted(100))
	if d.State != detectors.StateRunning || d.Worker != "one" || d.Counts.Entities != 4 {
		t.Errorf("the detector is %+v, %+v", d, d.Counts)
	}
	c.explained(t, "plant", doctor.Serving)
	c.explained(t, "other", doctor.NoDetector)
	first := d.Job
	c.cpuAgent(t, "two")
	end()
	c.push(t, "plant", 100, 200)
	c.await(t, "plant", "after the drain", func(d detectors.Detector) bool {
		return counted(200)(d) && d.Worker == "two" && d.Job == first
	})
	if err := c.all.Pause(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	d = c.await(t, "plant", "paused", func(d detectors.Detector) bool { return d.State == detectors.StatePaused })
	if d.Counts == nil || d.Counts.Rows != 200 || d.Counts.Decisions != 200 {
		t.Errorf("the paused detector has %+v", d.Counts)
	}
	c.explained(t, "plant", doctor.DetectorPaused)
	// The agent reads later rows of another detector, so plant has had the time to read.
	c.push(t, "plant", 200, 300)
	if err := c.all.Create(t.Context(), spec(t, "witness", "nats:OUT/out.witness")); err != nil {
		t.Fatal(err)
	}
	c.push(t, "witness", 200, 300)
	c.await(t, "witness", "the rows of the pause", counted(100))
	d, err = c.all.Get(t.Context(), "plant")
	if err != nil || d.State != detectors.StatePaused || d.Counts.Rows != 200 {
		t.Errorf("the paused detector is %+v, %v, counts %+v", d, err, d.Counts)
	}
	if seen := decided(t, out, "out.plant"); len(seen) != 200 {
		t.Errorf("the paused detector has decisions of %d rows, want 200", len(seen))
	}
	if err := c.all.Delete(t.Context(), "witness"); err != nil {
		t.Fatal(err)
	}
	if err := c.all.Resume(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	d = c.await(t, "plant", "after the pause", counted(300))
	if d.Job == first || d.Counts.Entities != 4 {
		t.Errorf("the detector is %+v, %+v", d, d.Counts)
	}
	if list, err := c.all.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != "plant" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	// Each decision once.
	seen := decided(t, out, "out.plant")
	for at, n := range seen {
		if n != 1 {
			t.Errorf("the row at %s has %d decisions", at, n)
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d rows have a decision, want 300", len(seen))
	}
	before, err := out.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.all.Delete(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.all.Get(t.Context(), "plant"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the deleted detector: %v", err)
	}
	for name := range js.StreamNames(t.Context()).Name() {
		if strings.HasPrefix(name, "EXO_LOG_") {
			t.Errorf("the log %s is left", name)
		}
	}
	// A later detector of the same name starts with an empty state, also on the same subject.
	if err := c.all.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c.push(t, "plant", 300, 310)
	d = c.await(t, "plant", "the second detector", counted(10))
	if now, err := out.Info(t.Context()); err != nil || d.Counts.Rows != 10 ||
		now.State.LastSeq <= before.State.LastSeq {
		t.Errorf("the second detector has %+v; the stream ends with %d, before with %d: %v", d.Counts,
			now.State.LastSeq, before.State.LastSeq, err)
	}
}

// TestWatched: what watches a cluster names a detector that waits for a receiver or for an agent,
// with the reason, and shows it as running when that is back.
func TestWatched(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var away atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer receiver.Close()
	w := observe.Start(observe.Options{Conn: c.conn, Every: 200 * time.Millisecond})
	defer w.Close()
	until := func(what string, fn func(observe.Watch) bool) {
		t.Helper()
		began := time.Now()
		testkit.Until(t, what, func() bool {
			all := w.State().Watches
			if time.Since(began) > 40*time.Second {
				d, err := c.all.Get(t.Context(), "plant")
				t.Fatalf("%s: %+v %+v %+v %v %v", what, all, d, d.Counts, err, w.State().Error)
			}
			return len(all) == 1 && all[0].Name == "plant" && fn(all[0])
		})
		t.Logf("%s after %v", what, time.Since(began).Round(100*time.Millisecond))
	}
	waits := func(why string) func(observe.Watch) bool {
		return func(v observe.Watch) bool {
			return v.State == observe.WatchWaits && strings.Contains(v.Why, why) && !v.Since.IsZero()
		}
	}
	s := spec(t, "plant", "")
	s.Sinks, s.Webhook = nil, &sink.WebhookSpec{URL: receiver.URL, All: true}
	if err := c.all.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	until("no agent", waits("no CPU agent has its job"))
	end := c.cpuAgent(t, "one")
	c.push(t, "plant", 0, 100)
	until("it runs", func(v observe.Watch) bool {
		return v.State == observe.WatchRuns && v.Decisions == 100 && v.Detector && v.Worker == "one" && v.Clock != ""
	})
	away.Store(true)
	c.push(t, "plant", 100, 120)
	until("a receiver is away", waits("a receiver"))
	away.Store(false)
	until("the receiver is back", func(v observe.Watch) bool { return v.State == observe.WatchRuns && v.Pending == 0 })
	end()
	until("the agent is gone", waits("no CPU agent has its job"))
	if err := c.all.Pause(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	until("paused", func(v observe.Watch) bool { return v.State == observe.WatchPaused && v.Why == "" })
	if err := c.all.Delete(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "it is deleted", func() bool { return len(w.State().Watches) == 0 })
}

// TestFailed: a detector whose sink cannot be used fails with the reason, and stays so until it is
// resumed.
func TestFailed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cpuAgent(t, "one")
	if err := c.all.Create(t.Context(), spec(t, "bad", "file:nowhere/x")); err != nil {
		t.Fatal(err)
	}
	d := c.await(t, "bad", "failed", func(d detectors.Detector) bool { return d.State == detectors.StateFailed })
	c.explained(t, "bad", doctor.DetectorFailed)
	first := d.Job
	if !strings.Contains(d.Error, "nowhere") {
		t.Errorf("the detector is %+v", d)
	}
	if err := c.all.Resume(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	c.await(t, "bad", "resumed", func(d detectors.Detector) bool { return d.Job != first })
	if err := c.all.Delete(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
}

// TestSpec: what cannot be a detector is refused with the cure.
func TestSpec(t *testing.T) {
	sources, sinks := []source.Series{{Name: "p", URI: "push:p"}}, []sink.Spec{{URI: "nats:A/b"}}
	for text, want := range map[string]string{
		"name: a\naddressed: agent\nagents: 256\ncell: {kind: leaky}\n": "addresses agents",
		"name: a\nagents_per_group: 16\ngroups: 3\n":                    "leave groups out",
	} {
		parsed, err := swarm.Parse("swarm.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := detectors.Spec(parsed, sources, sinks, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: a\nagents_per_group: 16\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := detectors.Spec(parsed, append(sources, source.Series{Name: "q", URI: "push:q"}), sinks, nil)
	if err != nil || s.Groups() != 2 {
		t.Errorf("two sources without a key have %d groups: %v", s.Groups(), err)
	}
}
