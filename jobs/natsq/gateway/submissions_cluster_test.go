package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSubmitOnceInCluster is TestSubmitOnce on three servers, while the stream of the marks gets
// another leader again and again.
func TestSubmitOnceInCluster(t *testing.T) {
	testkit.OnlyLong(t)
	all := jobstest.Cluster(t)
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

// BenchmarkSubmit measures what a vote waits for when a rule submits a job, or emits, through a
// server that does not sync. The emission is what it is compared with.
func BenchmarkSubmit(b *testing.B) {
	for name, of := range map[string]func(c *natsq.Conn) func(ctx context.Context, e swarms.Emission) error{
		"submit": func(c *natsq.Conn) func(context.Context, swarms.Emission) error {
			return gateway.NewRules(c.Conn).Submit
		},
		"emit": func(c *natsq.Conn) func(context.Context, swarms.Emission) error {
			return func(ctx context.Context, e swarms.Emission) error {
				return gateway.NewEmissions(c.Conn).Emit(ctx, "s", e)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			srv, c := jobstest.InProcess(b, natsq.Connect)
			s := create(b, c, swarms.NewNonce())
			via := jobstest.Open(b, srv, natsq.Connect)
			g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
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
