package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, 8)
}

// cluster is a server with accounts, and the folder that they are from.
type cluster struct {
	folder *auth.Folder
	server *server.Server
	dir    string // of the server
}

var tenants = []string{"acme", "umbrella"}

// start makes a folder with two tenants and a server that follows it, with the streams of the
// protocol.
func start(t testing.TB) *cluster {
	t.Helper()
	f, err := auth.Open(filepath.Join(t.TempDir(), "auth"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if _, err := f.Apply(auth.Options{Tenants: tenants}); err != nil {
		t.Fatal(err)
	}
	c := &cluster{folder: f, dir: t.TempDir()}
	c.serve(t, 0)
	t.Cleanup(func() { c.server.Close() }) // whichever it is then, when everybody has left
	c.connect(t, auth.Operator).Close()
	return c
}

func (c *cluster) serve(t testing.TB, port int) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: c.dir, Port: port, Auth: c.folder.ConfigFile()})
	if err != nil {
		t.Fatal(err)
	}
	c.server = s
}

func (c *cluster) port(t *testing.T) int {
	t.Helper()
	u, err := url.Parse(c.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (c *cluster) options(user string) natsconn.Options {
	return natsconn.Options{
		URL: c.server.URL(), Login: natsconn.Login{Credentials: c.folder.CredsFile(user)},
		Name: user,
	}
}

// connect logs a user in that may reach the queue itself.
func (c *cluster) connect(t testing.TB, user string) *natsq.Conn {
	t.Helper()
	conn, err := natsq.Connect(t.Context(), c.options(user))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// client logs a submitter in.
func (c *cluster) client(t testing.TB, user string) *gateway.Client {
	t.Helper()
	o := c.options(user)
	if _, err := natsq.Connect(t.Context(), o); !errors.Is(err, jobs.ErrDenied) {
		t.Fatalf("%s reaches the queue itself: %v", user, err)
	}
	client, err := gateway.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// raw logs a user in with nothing but the NATS client, and returns what the server refuses.
func (c *cluster) raw(t *testing.T, user string) (*nats.Conn, chan error) {
	t.Helper()
	refused := make(chan error, 1000)
	nc, err := nats.Connect(c.server.URL(), nats.UserCredentials(c.folder.CredsFile(user)),
		nats.CustomInboxPrefix("_INBOX."+user),
		nats.MaxReconnects(-1), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			refused <- err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, refused
}

// agent starts a worker of the CPU pool and a gateway under the role agent.
func (c *cluster) agent(t testing.TB) *natsq.Conn {
	t.Helper()
	conn := c.connect(t, auth.Agent)
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"echo": func(ctx context.Context, j jobs.Job, progress func(any)) (any, error) {
				progress("begun")
				jobs.Logger(ctx).Info("echoing")
				return j.Spec, nil
			},
			"fail": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "as it is meant to")
			},
			"wait": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return conn
}

// within is a context for what is waited for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func job(kind, id string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: kind, Spec: json.RawMessage(`{"x":1}`),
		Submitted: time.Now().UTC(),
	}
}

// refusals publishes or subscribes as a user and returns the subjects that the server refuses. The
// refusal of the last subject, which only operators may use, comes after the other refusals.
func refusals(t *testing.T, nc *nats.Conn, said chan error, subjects []string,
	do func(subject string) error,
) (all []string) {
	t.Helper()
	const last = "nobody.may"
	for _, s := range append(slices.Clone(subjects), last) {
		if err := do(s); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	for {
		select {
		case err := <-said:
			_, subject, _ := strings.Cut(err.Error(), `"`)
			subject, _, _ = strings.Cut(subject, `"`)
			if subject == last {
				return all
			}
			all = append(all, subject)
		case <-ctx.Done():
			t.Fatal("the server refuses nothing")
		}
	}
}
