package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// site is a set of servers that run with files of deploy/nats.
type site struct {
	t      *testing.T
	folder *auth.Folder
}

func newSite(t *testing.T) *site {
	t.Helper()
	f, err := auth.Open(filepath.Join(t.TempDir(), "auth"), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	return &site{t, f}
}

// start starts a server with a file of deploy/nats and these variables, on free ports. The other
// files are included at its end. It returns the URL for clients.
func (s *site) start(file string, ports map[string]int, env map[string]string, others ...string) string {
	t := s.t
	t.Helper()
	dir := t.TempDir()
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("../../../deploy/nats", name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := string(read(file))
	for _, name := range others {
		text += "\n" + string(read(name))
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	// What a test may not use of the machine: its ports and its folders.
	text = strings.ReplaceAll(text, "/var/lib/nats", filepath.Join(dir, "nats"))
	text = strings.ReplaceAll(text, "127.0.0.1:8222", "127.0.0.1:-1")
	for from, to := range ports {
		text = regexp.MustCompile(`listen: [0-9.]+:`+from).
			ReplaceAllString(text, fmt.Sprint("listen: 127.0.0.1:", to))
	}
	conf, err := os.ReadFile(s.folder.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	for name, content := range map[string]string{path: text, filepath.Join(dir, "auth.conf"): string(conf)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := natsd.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	o.NoSigs, o.NoLog = true, true
	ns, err := natsd.NewServer(o)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	go ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(30 * time.Second) {
		t.Fatalf("%s: the server does not accept connections", file)
	}
	testkit.Until(t, "the leaf node connections of "+file, func() bool {
		return len(o.LeafNode.Remotes) <= ns.NumLeafNodes()
	})
	return ns.ClientURL()
}

// connect logs a user in. It waits for a cluster that is electing its leaders.
func (s *site) connect(ctx context.Context, url, user string, replicas int) *natsq.Conn {
	s.t.Helper()
	c, err := natsq.Connect(ctx, natsconn.Options{
		URL: url, Login: natsconn.Login{Credentials: s.folder.CredsFile(user)}, Name: user, Replicas: replicas,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatalf("log in as %s at %s: %v", user, url, err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// works has an agent do a job that an operator submits; the two use different servers.
func (s *site) works(operatorAt, agentAt string, agent string, replicas int) {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	operator := s.connect(ctx, operatorAt, auth.Operator, replicas)
	worker, err := s.connect(ctx, agentAt, agent, replicas).Work(ctx, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Concurrency: 1, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]jobs.Handler{"twice": func(_ context.Context, job jobs.Job, _ func(any)) (any, error) {
			var n int
			err := json.Unmarshal(job.Spec, &n)
			return 2 * n, err
		}},
	})
	if err != nil {
		t.Fatalf("start a worker: %v", err)
	}
	defer func() {
		if err := worker.Drain(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("drain: %v", err)
		}
	}()
	job := jobs.Job{
		Version: jobs.Version, ID: "j", Pool: jobs.PoolCPU, Kind: "twice", Spec: []byte("21"), MaxAttempts: 1,
	}
	if err := operator.Queue.Submit(ctx, job); err != nil {
		t.Fatalf("submit: %v", err)
	}
	if r, err := operator.Results.Result(ctx, job.ID); err != nil || string(r.Output) != "42" {
		t.Errorf("the result is %+v, error %v; want 42", r, err)
	}
}

// freePorts returns ports that were free a moment ago, all different.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// TestDeployedSingle: a server with the file for one accepts the users of auth.conf and no others,
// and the queue works on it.
func TestDeployedSingle(t *testing.T) {
	s := newSite(t)
	url := s.start("single.conf", map[string]int{"4222": -1}, map[string]string{"NATS_SERVER_NAME": "n1"})
	s.works(url, url, auth.Agent, 1)
	if _, err := natsq.Connect(t.Context(), natsconn.Options{URL: url, Patience: time.Second}); err == nil {
		t.Error("a client without credentials is let in")
	}
}

// TestDeployedLeaf: an agent at a leaf node does the jobs of the cluster, with the rights of its
// role and no more.
func TestDeployedLeaf(t *testing.T) {
	s := newSite(t)
	ports := freePorts(t, 1)
	hub := s.start("single.conf", map[string]int{"4222": -1, "7422": ports[0]}, map[string]string{
		"NATS_SERVER_NAME": "n1",
	}, "leafnodes.conf")
	remote := fmt.Sprint("nats-leaf://127.0.0.1:", ports[0])
	leaf := s.start("leaf.conf", map[string]int{"4222": -1}, map[string]string{
		"NATS_SERVER_NAME": "leaf1", "NATS_HUB_1": remote, "NATS_HUB_2": remote, "NATS_HUB_3": remote,
		"NATS_CREDS": s.folder.CredsFile(auth.Agent),
	})
	s.works(hub, leaf, auth.Agent, 1)
	// The leaf node checks nobody, so this is the role of its own login.
	nc, err := nats.Connect(leaf, nats.CustomInboxPrefix("_INBOX."+auth.Agent))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if m, err := nc.Request("$JS.API.STREAM.INFO.EXO_RESULTS", nil, 10*time.Second); err != nil ||
		strings.Contains(string(m.Data), "error") {
		t.Errorf("the description of a stream: error %v, answer %v", err, m)
	}
	if m, err := nc.Request("$JS.API.STREAM.DELETE.EXO_RESULTS", nil, 300*time.Millisecond); err == nil {
		t.Errorf("a client of the leaf node deletes a stream, which its role may not: %s", m.Data)
	}
}

// TestDeployedCluster: three servers with the file for three elect leaders, and the queue works
// with three replicas, at any of them.
func TestDeployedCluster(t *testing.T) {
	testkit.OnlyLong(t)
	s := newSite(t)
	ports := freePorts(t, 3)
	env := map[string]string{"NATS_ROUTE_PASSWORD": "secret"}
	for i, port := range ports {
		env[fmt.Sprint("NATS_ROUTE_", i+1)] = fmt.Sprint("nats-route://exoswarm:secret@127.0.0.1:", port)
	}
	var urls []string
	for i, port := range ports {
		env["NATS_SERVER_NAME"] = fmt.Sprint("n", i+1)
		urls = append(urls, s.start("nats-server.conf", map[string]int{"4222": -1, "6222": port}, env))
	}
	s.works(urls[0], urls[2], auth.Agent, 3)
}
