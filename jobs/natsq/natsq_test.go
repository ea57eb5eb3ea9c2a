package natsq_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// maxParallel is how many tests run at a time. They mostly wait.
const maxParallel = 8

// fewChecks is how many random sequences the model and the graphs of the suite get in a short run.
const fewChecks = 25

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, maxParallel)
}

// work starts a worker of pool cpu without a log. The end of the test drains it.
func work(t testing.TB, c *natsq.Conn, o natsq.WorkerOptions) *natsq.Worker {
	t.Helper()
	o.Pool, o.Logger = jobs.PoolCPU, jobstest.Quiet
	return jobstest.Work(t, c.Work, o)
}

// client returns the parts of a connection that the suite tests.
func client(c *natsq.Conn) jobstest.Client {
	return jobstest.Client{
		JobQueue: c.Queue, DeadLetterStore: c.Letters, ResultStore: c.Results, SwarmStore: c.Swarms,
		ObjectStore: c.Objects, AgentRegistry: c.Registry, Control: c.Control, Scheduler: c.Schedules, Conn: c,
	}
}

func TestConformance(t *testing.T) {
	testkit.Checks(t, fewChecks)
	t.Parallel()
	conformance(t, client)
}

// inMemory submits every job in memory, unless the job asks for a level.
type inMemory struct{ jobstest.JobQueue }

func memory(j jobs.Job) jobs.Job {
	if j.Replicas == 0 && j.Durability == "" {
		return j.WithLevel(jobs.LevelMemory)
	}
	return j
}

func (q inMemory) Submit(ctx context.Context, j jobs.Job) error {
	return q.JobQueue.Submit(ctx, memory(j))
}

func (q inMemory) SubmitBatch(ctx context.Context, batch []jobs.Job) error {
	all := make([]jobs.Job, len(batch))
	for i, j := range batch {
		all[i] = memory(j)
	}
	return q.JobQueue.SubmitBatch(ctx, all)
}

// TestConformanceInMemory: jobs of another level than the default keep the whole contract.
func TestConformanceInMemory(t *testing.T) {
	testkit.Checks(t, fewChecks)
	t.Parallel()
	conformance(t, func(c *natsq.Conn) jobstest.Client {
		parts := client(c)
		parts.JobQueue = inMemory{parts.JobQueue}
		return parts
	})
}

func conformance(t *testing.T, client func(c *natsq.Conn) jobstest.Client) {
	jobstest.Run(t, func(t *testing.T) jobstest.Queue {
		s := jobstest.Start(t, server.Options{Port: server.InProcess})
		return jobstest.Queue{
			Connect: func(t *testing.T) jobstest.Client { return client(jobstest.Open(t, s, natsq.Connect)) },
			Start: func(t *testing.T, c jobstest.Client, l jobstest.Workload) func() {
				o := natsq.WorkerOptions{
					Name: "w", Pool: jobs.PoolCPU, Handlers: l.Handlers,
					Concurrency: l.Concurrency, Logger: jobstest.Quiet, Batches: map[string]natsq.Batch{},
				}
				for kind, h := range l.Batches {
					o.Batches[kind] = natsq.Batch{Handle: h, Max: l.MaxBatch, Linger: l.Linger}
				}
				w, err := c.Conn.(*natsq.Conn).Work(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				return func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					if err := w.Drain(ctx); err != nil {
						t.Error(err)
					}
				}
			},
		}
	})
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	_, err := natsq.Connect(t.Context(), natsconn.Options{URL: "nats://127.0.0.1:1"})
	if !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), "no NATS server answers at "+
		"nats://127.0.0.1:1") {
		t.Errorf("unreachable: %v", err)
	}
	s := jobstest.Start(t, server.Options{Token: "secret"})
	if _, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()}); err == nil {
		t.Error("connected without the token")
	}
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: strings.Replace(s.URL(), "nats://", "nats://secret@",
		1)})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestNoJetStream(t *testing.T) {
	ns, err := natsd.NewServer(&natsd.Options{Host: "127.0.0.1", Port: natsd.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not start")
	}
	_, err = natsq.Connect(t.Context(), natsconn.Options{URL: ns.ClientURL()})
	if err == nil || !strings.Contains(err.Error(), "has no JetStream: start it with -js, or use exoswarm nats") {
		t.Fatalf("%v", err)
	}
}

func TestServerErrors(t *testing.T) {
	for name, o := range map[string]server.Options{
		"needs a token": {Dir: t.TempDir(), Host: "0.0.0.0"},
		"data folder":   {Dir: "/does/not/exist"},
	} {
		if s, err := server.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
			if s != nil {
				s.Close()
			}
		}
	}
}

// TestServerInClear: a server beyond loopback without TLS says what goes over the wire. The folder
// is missing, so that it does not listen.
func TestServerInClear(t *testing.T) {
	for name, c := range map[string]struct {
		o    server.Options
		says bool
	}{
		"all addresses": {server.Options{Host: "0.0.0.0", Token: "t"}, true},
		"loopback":      {server.Options{Host: "127.0.0.1", Token: "t"}, false},
		"TLS":           {server.Options{Host: "0.0.0.0", Token: "t", Cert: "c", Key: "k"}, false},
	} {
		var said strings.Builder
		c.o.Dir, c.o.Logger = "/does/not/exist", slog.New(slog.NewTextHandler(&said, nil))
		if _, err := server.Start(t.Context(), c.o); err == nil {
			t.Fatalf("%s: it starts", name)
		}
		if got := strings.Contains(said.String(), "in clear"); got != c.says {
			t.Errorf("%s: %q", name, said.String())
		}
	}
}

// TestServerRestart: what was acknowledged is there after the server was stopped and started again,
// and connections come back by themselves.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := c.Swarms.Log("s", 0, swarms.In)
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := l.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := range uint64(40) {
		if n == 20 {
			url := s.URL()
			s.Close()
			port := 0
			for _, d := range url[strings.LastIndex(url, ":")+1:] {
				port = 10*port + int(d-'0')
			}
			if s, err = server.Start(t.Context(), server.Options{Dir: dir, Port: port}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Append(t.Context(), n, swarms.Entry{Kind: "k", Ref: n}); err != nil {
			t.Fatal(err)
		}
	}
	defer s.Close()
	for n := range uint64(40) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		e, err := r.Next(ctx)
		cancel()
		if err != nil || e.Ref != n {
			t.Fatalf("entry %d: %+v, %v", n, e, err)
		}
	}
}
