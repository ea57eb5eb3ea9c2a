package submissions_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsqtest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSubmitOnceInCluster is TestSubmitOnce on three servers, while the stream of the marks gets
// another leader again and again.
func TestSubmitOnceInCluster(t *testing.T) {
	testlong.Only(t)
	all := cluster(t)
	connect := func() *natsq.Conn {
		c, err := natsq.Connect(t.Context(), natsconn.Options{
			URL: all[0].URL(), Name: "test", Replicas: 3, Lease: 4 * time.Second, Patience: time.Minute,
		})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := connect()
	ctx, stop := context.WithCancel(t.Context())
	var down sync.WaitGroup
	n := 0
	down.Go(func() {
		for ctx.Err() == nil {
			_, err := c.NC.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.EXO_WAIT", nil)
			if err == nil {
				n++
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	submitOnce(t, 30, connect)
	stop()
	down.Wait()
	if n < 2 {
		t.Errorf("the leader has stepped down %d times", n)
	}
	t.Logf("the leader has stepped down %d times", n)
}

// cluster starts three servers.
func cluster(t *testing.T) (all [3]*server.Server) {
	t.Helper()
	var ports [3]int
	var routes []string
	for i := range ports {
		ports[i] = natsqtest.Port(t)
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	var started sync.WaitGroup
	for i := range all {
		dir := t.TempDir()
		started.Go(func() {
			s, err := server.Start(t.Context(), server.Options{
				Dir: dir, Name: fmt.Sprintf("s%d", i), ClusterPort: ports[i], Routes: routes, Fast: true,
			})
			if err != nil {
				t.Errorf("server.Start: %v", err)
				return
			}
			all[i] = s
		})
	}
	started.Wait()
	for _, s := range all {
		if s == nil {
			t.FailNow()
		}
		t.Cleanup(s.Close)
	}
	return all
}

// BenchmarkSubmit measures what a vote waits for when a rule submits a job, or emits, through a
// server that does not sync. The emission is what it is compared with.
func BenchmarkSubmit(b *testing.B) {
	for name, of := range map[string]func(c *natsq.Conn) func(ctx context.Context, e swarms.Emission) error{
		"submit": func(c *natsq.Conn) func(context.Context, swarms.Emission) error { return c.Rules.Submit },
		"emit": func(c *natsq.Conn) func(context.Context, swarms.Emission) error {
			return func(ctx context.Context, e swarms.Emission) error { return c.Emissions.Emit(ctx, "s", e) }
		},
	} {
		b.Run(name, func(b *testing.B) {
			srv, c := natsqtest.InProcess(b)
			s := create(b, c, swarms.NewNonce())
			g, err := natsqtest.Connect(b, srv).Serve(jobstest.Quiet)
			if err != nil {
				b.Fatalf("Serve: %v", err)
			}
			defer g.Close()
			do, at := of(c), uint64(0)
			for b.Loop() {
				at++
				if err := do(b.Context(), asked(s, "retrain", at, 1)); err != nil {
					b.Fatalf("%s: %v", name, err)
				}
			}
		})
	}
}
