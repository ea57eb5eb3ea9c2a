package swarmlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// announced makes a swarm and the logs of its shards.
func announced(t *testing.T, c *natsq.Conn, s swarms.Swarm) swarms.Swarm {
	t.Helper()
	s.Version, s.Name, s.Groups = jobs.Version, s.ID, 4
	if s.Spec == nil {
		s.Spec = json.RawMessage("{}")
	}
	if err := c.Swarms.CreateSwarm(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for k := range s.ShardCount() {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := c.Swarms.Log(s.Key(), k, d).Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// TestOrphans: what is left of ended runs is found and removed, and nothing else is.
func TestOrphans(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	ctx := t.Context()
	if err := c.Queue.Submit(ctx, jobs.Job{
		Version: jobs.Version, ID: "queued", Pool: jobs.PoolCPU, Kind: "stream",
		Spec: json.RawMessage("{}"),
	}); err != nil {
		t.Fatal(err)
	}
	lasting := announced(t, c, swarms.Swarm{ID: "lasting", Nonce: swarms.NewNonce(), Shards: 2})
	announced(t, c, swarms.Swarm{ID: "queued", Nonce: swarms.NewNonce(), Owner: "queued"})
	// of an earlier version
	former := announced(t, c, swarms.Swarm{ID: "former", Spec: json.RawMessage(`{"agents":40}`)})
	announced(t, c, swarms.Swarm{ID: "over", Nonce: swarms.NewNonce(), Owner: "over"})
	announced(t, c, swarms.Swarm{ID: "former-run"})
	ending := announced(t, c, swarms.Swarm{ID: "ending", Nonce: swarms.NewNonce()})
	if _, err := c.Swarms.ChangeSwarm(ctx, ending, func(s *swarms.Swarm) { s.Ending = true }); err != nil {
		t.Fatal(err)
	}
	earlier := swarms.Swarm{ID: "lasting", Nonce: swarms.NewNonce()} // an earlier one, whose record is gone
	if err := c.Swarms.Log(earlier.Key(), 7, swarms.In).Create(ctx); err != nil {
		t.Fatal(err)
	}
	all, err := c.Swarms.Orphans(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range all {
		got[o.Swarm.Key()] = o.Reason
	}
	if len(got) != 4 || got[ending.Key()] != "its removal was interrupted" ||
		got[earlier.Key()] != "its record is gone" || got["former-run"] != "job former-run is over" {
		t.Fatalf("%v", got)
	}
	run, stop := context.WithCancel(ctx)
	var sweeping sync.WaitGroup
	for range 2 {
		sweeping.Go(func() { c.Swarms.SweepOrphans(run, 20*time.Millisecond, jobstest.Quiet) })
	}
	testkit.Until(t, "orphans are left", func() bool {
		all, err := c.Swarms.Orphans(ctx)
		return err == nil && len(all) == 0
	})
	stop()
	sweeping.Wait()
	left, err := c.Swarms.Swarms(ctx)
	if err != nil || !slices.EqualFunc(left, []string{"former", "lasting", "queued"},
		func(s swarms.Change, id string) bool { return s.ID == id }) {
		t.Fatalf("%v: %v", left, err)
	}
	for _, s := range []swarms.Swarm{lasting, former} {
		for k := range s.ShardCount() {
			if _, err := c.Swarms.Log(s.Key(), k, swarms.Out).Last(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRecordsAreTheirMakers: only a caller that has read a record can replace, remove or change it.
func TestRecordsAreTheirMakers(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	ctx := t.Context()
	first := announced(t, c, swarms.Swarm{ID: "s", Nonce: swarms.NewNonce()})
	if err := c.Swarms.CreateSwarm(ctx, first); err != nil { // as when an answer was lost
		t.Fatal(err)
	}
	second := first
	second.Nonce = swarms.NewNonce()
	if err := c.Swarms.CreateSwarm(ctx, second); !errors.Is(err, jobs.ErrExists) ||
		!strings.Contains(err.Error(), "exoswarm swarm delete s") {
		t.Fatal(err)
	}
	if err := c.Swarms.RemoveSwarm(ctx, second); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Swarms.ChangeSwarm(ctx, second, func(s *swarms.Swarm) { s.Name = "stolen" }); !errors.Is(err,
		jobs.ErrNotFound) {
		t.Fatal(err)
	}
	if now, err := c.Swarms.Swarm(ctx, "s"); err != nil || !now.Same(first) || now.Name != "s" {
		t.Fatalf("%+v: %v", now, err)
	}
	if _, err := c.Swarms.Log(first.Key(), 0, swarms.In).Last(ctx); err != nil {
		t.Fatal(err)
	}
	// One that is being removed makes room, and what its remover does late does not touch the next.
	if _, err := c.Swarms.ChangeSwarm(ctx, first, func(s *swarms.Swarm) { s.Ending = true }); err != nil {
		t.Fatal(err)
	}
	announced(t, c, second)
	if err := c.Swarms.RemoveSwarm(ctx, first); err != nil {
		t.Fatal(err)
	}
	if now, err := c.Swarms.Swarm(ctx, "s"); err != nil || !now.Same(second) || now.Ending {
		t.Fatalf("%+v: %v", now, err)
	}
	if _, err := c.Swarms.Log(second.Key(), 0, swarms.In).Last(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Swarms.Log(first.Key(), 0, swarms.In).Last(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
}

// TestAbandonedRun: a job that ends before its handler is called again leaves no swarm of an
// earlier attempt.
func TestAbandonedRun(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	ctx := t.Context()
	announced(t, c, swarms.Swarm{ID: "other", Nonce: swarms.NewNonce()})
	var attempts atomic.Int32
	w, err := c.Work(ctx, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"stream": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
			attempts.Add(1)
			if j.ID == "mine" {
				announced(t, c, swarms.Swarm{ID: j.ID, Nonce: swarms.NewNonce(), Owner: j.ID})
			}
			if err := c.Queue.Cancel(ctx, j, false); err != nil {
				t.Error(err)
			}
			return nil, jobs.Retry(errors.New("the server was away"))
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Drain(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	for _, id := range []string{"mine", "other"} {
		if err := c.Queue.Submit(ctx, jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "stream",
			Spec: json.RawMessage("{}"),
		}); err != nil {
			t.Fatal(err)
		}
		r, err := c.Results.Result(ctx, id)
		if err != nil || r.Status != jobs.Failed {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	if n := attempts.Load(); n != 2 {
		t.Logf("%d attempts", n)
	}
	if _, err := c.Swarms.Swarm(ctx, "mine"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the swarm of the run: %v", err)
	}
	if s, err := c.Swarms.Swarm(ctx, "other"); err != nil || s.Ending {
		t.Errorf("the lasting swarm of a job's id: %+v: %v", s, err)
	}
	if all, err := c.Swarms.Orphans(ctx); err != nil || len(all) > 0 {
		t.Errorf("%+v: %v", all, err)
	}
}
