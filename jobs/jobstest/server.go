package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Start starts a server with a new folder. The server does not sync each acknowledgement, because
// no test cuts its power. The end of the test closes it.
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

// connection is what natsq.Connect and natsconn.Open return. This package imports neither package
// natsq nor its parts above natsconn, so that their internal tests can use it.
type connection interface{ Close() }

// Open connects to a server. The end of the test closes the connection.
func Open[C connection](
	t testing.TB, s *server.Server, connect func(context.Context, natsconn.Options) (C, error),
) C {
	t.Helper()
	return Leased(t, s, 0, connect)
}

// Leased is Open with the time after which a silent worker loses its jobs; 0 for the default.
func Leased[C connection](
	t testing.TB, s *server.Server, lease time.Duration, connect func(context.Context, natsconn.Options) (C, error),
) C {
	t.Helper()
	return dial(t, natsconn.Options{InProcess: s, Name: t.Name(), Lease: lease}, connect)
}

// dial connects with options. The end of the test closes the connection.
func dial[C connection](
	t testing.TB, o natsconn.Options, connect func(context.Context, natsconn.Options) (C, error),
) C {
	t.Helper()
	c, err := connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Raw connects to a server without creating what the protocol keeps there, for what the library
// does not offer: the fields NC and JS are the clients of the NATS library.
func Raw(t testing.TB, o natsconn.Options) *natsconn.Conn {
	t.Helper()
	o.Name, o.Bare = t.Name(), true
	return dial(t, o, natsconn.Open)
}

// InProcess starts a server that listens nowhere, and connects to it with a lease of 2 s.
func InProcess[C connection](
	t testing.TB, connect func(context.Context, natsconn.Options) (C, error),
) (*server.Server, C) {
	t.Helper()
	s := Start(t, server.Options{Port: server.InProcess})
	return s, Leased(t, s, 2*time.Second, connect)
}

// Connected starts a server that listens nowhere, and connects to it with the default lease.
func Connected[C connection](t testing.TB, connect func(context.Context, natsconn.Options) (C, error)) C {
	t.Helper()
	return Open(t, Start(t, server.Options{Port: server.InProcess}), connect)
}

// Work calls start, the method Work of a connection, with options. The end of the test drains the
// worker.
func Work[O any, W interface {
	Drain(ctx context.Context) error
}](
	t testing.TB, start func(context.Context, O) (W, error), o O,
) W {
	t.Helper()
	w, err := start(t.Context(), o)
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
func Await(t testing.TB, results ResultStore, id string) jobs.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := results.Result(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Job returns a job of pool cpu with the specification 1, which waits for the jobs of after.
func Job(id, kind string, after ...string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: kind, Spec: json.RawMessage("1"), After: after,
	}
}

// Publish stores a message past the library.
func Publish(ctx context.Context, t testing.TB, s *server.Server, subject string, data []byte) {
	t.Helper()
	m, err := Raw(t, natsconn.Options{InProcess: s}).NC.RequestWithContext(ctx, subject, data)
	if err != nil || strings.Contains(string(m.Data), "error") {
		t.Fatal(m, err)
	}
}

// Typed fails unless err is nil or of a class that its receiver can act on.
func Typed(t testing.TB, err error) {
	t.Helper()
	var e *jobs.Error
	var s *schema.Error
	if err != nil && !errors.As(err, &s) && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid &&
		e.Code != jobs.CodeVersion) {
		t.Fatalf("an error of no class: %v", err)
	}
}
