// Package natsqtest starts servers and connections for the tests of natsq and its parts.
package natsqtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// Start starts a server with a folder of its own, which does not sync each acknowledgement: no test
// cuts its power. The end of the test closes it.
func Start(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	o.Dir, o.Fast = t.TempDir(), true
	s, err := server.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Port returns a free TCP port of 127.0.0.1 for a server that the test stops and starts again. The
// system takes ports of outgoing connections from 32768 on, so a port from below stays free while
// the server is away.
func Port(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp",
			fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil { // no process listens there
			return port
		}
		_ = c.Close()
	}
	t.Fatal("no port from 20000 to 31999 is free")
	return 0
}

// Cluster starts three servers that are one cluster, whose disks are not synced. They end with the
// test.
func Cluster(t testing.TB) (all [3]*server.Server) {
	t.Helper()
	var ports [3]int
	var routes []string
	for i := range ports {
		ports[i] = Port(t)
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

// Connect connects to a server. The end of the test closes the connection.
func Connect(t testing.TB, s *server.Server) *natsq.Conn { return Leased(t, s, 0) }

// Leased is Connect with the time after which a silent worker loses its jobs; 0 for the default.
func Leased(t testing.TB, s *server.Server, lease time.Duration) *natsq.Conn {
	t.Helper()
	c, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// InProcess starts a server that listens nowhere, and connects to it with a lease of 2 s.
func InProcess(t testing.TB) (*server.Server, *natsq.Conn) {
	t.Helper()
	s := Start(t, server.Options{Port: server.InProcess})
	return s, Leased(t, s, 2*time.Second)
}

// Work starts a worker of pool cpu without a log. The end of the test drains it.
func Work(t testing.TB, c *natsq.Conn, o natsq.WorkerOptions) *natsq.Worker {
	t.Helper()
	o.Pool, o.Logger = jobs.PoolCPU, jobstest.Quiet
	w, err := c.Work(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Drain(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Await waits for the result of a job for at most two minutes.
func Await(t testing.TB, c *natsq.Conn, id string) jobs.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := c.Results.Result(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Job returns a job of pool cpu with the specification 1.
func Job(id, kind string) jobs.Job {
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: kind, Spec: json.RawMessage("1")}
}

// Eventually waits until ok holds, for as long as a loaded machine needs.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// JetStream returns a client of the server, for what the library does not offer.
func JetStream(t testing.TB, s *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Publish stores a message past the library.
func Publish(ctx context.Context, t testing.TB, s *server.Server, subject string, data []byte) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if m, err := nc.RequestWithContext(ctx, subject, data); err != nil || strings.Contains(string(m.Data), "error") {
		t.Fatal(m, err)
	}
}
