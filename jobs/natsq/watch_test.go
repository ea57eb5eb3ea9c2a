package natsq_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// remade is a server that is stopped and started again, with its store or an empty one.
type remade struct {
	*server.Server
	dir  string
	port int
}

func newRemade(t *testing.T) *remade {
	t.Helper()
	r := &remade{dir: t.TempDir(), port: jobstest.Port(t)}
	r.up(t)
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *remade) up(t *testing.T) {
	t.Helper()
	var err error
	if r.Server, err = server.Start(t.Context(), server.Options{Dir: r.dir, Port: r.port}); err != nil {
		t.Fatal(err)
	}
}

// again restarts the server.
func (r *remade) again(t *testing.T, empty bool) {
	t.Helper()
	r.Close()
	if empty {
		if err := os.RemoveAll(r.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(r.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.up(t)
}

func (r *remade) connect(t *testing.T) *natsq.Conn {
	t.Helper()
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: r.URL(), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestWatchOfRemadeRecords: a watch hears of what there is in buckets that were made anew, although
// their numbers are lower, and of what is gone.
func TestWatchOfRemadeRecords(t *testing.T) {
	t.Parallel()
	s := newRemade(t)
	watcher := s.connect(t)
	first := s.connect(t)
	var mu sync.Mutex
	there := map[string]string{} // nonces by id
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.Swarms.WatchSwarms(ctx, func(ch swarms.Change) {
			mu.Lock()
			defer mu.Unlock()
			if there[ch.ID] = ch.Swarm.Nonce; ch.Gone {
				delete(there, ch.ID)
			}
		})
	}()
	know := func(id, nonce string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return there[id] == nonce
		}
	}
	make := func(c *natsq.Conn, id string) string {
		t.Helper()
		n := swarms.NewNonce()
		if err := c.Swarms.CreateSwarm(t.Context(),
			swarms.Swarm{
				Version: jobs.Version, ID: id, Nonce: n, Name: id, Spec: json.RawMessage("{}"),
				Groups: 1,
			}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		n := make(first, id)
		testkit.Until(t, "record "+id, know(id, n))
	}
	s.again(t, false)
	testkit.Until(t, "a record after a restart", know("e", make(s.connect(t), "e")))
	s.again(t, true)
	c := s.connect(t) // which makes the buckets
	n := make(c, "b")
	testkit.Until(t, "a record of the new bucket", know("b", n))
	for _, id := range []string{"a", "c", "d", "e"} {
		testkit.Until(t, "the end of "+id, know(id, ""))
	}
	testkit.Until(t, "a later record", know("f", make(c, "f")))
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestPauseOfRemadeBuckets: a pause holds over a restart and over a bucket that is away, is
// forgotten with its bucket, and is heard of in a new one.
func TestPauseOfRemadeBuckets(t *testing.T) {
	t.Parallel()
	s := newRemade(t)
	agent := s.connect(t)
	var done atomic.Int32
	w, err := agent.Work(t.Context(), natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { done.Add(1); return nil, nil },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	c := s.connect(t)
	submit := func(id string) {
		t.Helper()
		if err := c.Queue.Submit(t.Context(), jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k",
			Spec: json.RawMessage("{}"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 { // so that the sequence numbers are higher than in the next bucket
		if err := c.Control.Pause(t.Context(), jobs.PoolCPU, ""); err != nil {
			t.Fatal(err)
		}
		if err := c.Control.Resume(t.Context(), jobs.PoolCPU, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Control.Pause(t.Context(), jobs.PoolCPU, "k"); err != nil {
		t.Fatal(err)
	}
	s.again(t, false)
	c = s.connect(t)
	testkit.Until(t, "the worker hears of the pause", func() bool { return w.Paused("k") })
	submit("held")
	if n := done.Load(); n > 0 {
		t.Fatalf("%d jobs of a paused kind were done", n)
	}
	s.again(t, true)
	c = s.connect(t)
	testkit.Until(t, "the pause is forgotten with its bucket", func() bool { return !w.Paused("k") })
	submit("free")
	if _, err := c.Results.Result(t.Context(), "free"); err != nil {
		t.Fatal(err)
	}
	if err := c.Control.Pause(t.Context(), jobs.PoolCPU, "k"); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a pause in the new bucket", func() bool { return w.Paused("k") })
	submit("late") // A request that was under way when the worker heard of the pause may still bring one job.
	before := done.Load()
	if before > 2 {
		t.Fatalf("%d jobs were done, and 2 were submitted", before)
	}
	if before == 2 {
		submit("held")
		if n := done.Load(); n != before {
			t.Fatalf("%d jobs were done of 3, with the pause heard before the last was submitted", n)
		}
	}
	if err := c.Control.Resume(t.Context(), jobs.PoolCPU, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Results.Result(t.Context(), "late"); err != nil {
		t.Fatal(err)
	}
}
