package python

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// gpuAgent starts a server with a gateway and a worker of pool gpu on the host device, and returns
// the URL of the server and the connection.
func gpuAgent(t *testing.T) (string, *natsq.Conn) {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	t.Cleanup(srv.Close)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: srv.URL(), Name: "agent"})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	t.Cleanup(g.Close)
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	devices := pool.New(pool.Options{Devices: []pool.Accelerator{{Device: dev}}})
	t.Cleanup(devices.Close)
	handlers, err := gpujobs.New(gpujobs.Options{
		Slot: func(ctx context.Context, bytes int64) (gpujobs.Slot, error) {
			return devices.Take(ctx, func() int64 { return bytes })
		},
		Objects: conn.Objects,
	})
	if err != nil {
		t.Fatalf("gpujobs.New: %v", err)
	}
	t.Cleanup(handlers.Close)
	together := map[string]natsq.Batch{}
	for kind, handle := range handlers.Batches() {
		together[kind] = natsq.Batch{Handle: handle, Size: handlers.BatchSize, Linger: -1}
	}
	worker, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "agent", Pool: jobs.PoolGPU, Handlers: handlers.Jobs(), Batches: together,
	})
	if err != nil {
		t.Fatalf("Work: %v", err)
	}
	t.Cleanup(worker.Stop)
	return srv.URL(), conn
}

// TestGPU: the client in Python submits jobs to a GPU agent and prints their results.
func TestGPU(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
	url, _ := gpuAgent(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, python, "gpu.py", "--nats", url)
	cmd.Env, cmd.Stderr = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), &stderr
	out, err := cmd.Output()
	const want = "sum: 6.5\nsorted: [-10, 20, 30] [1, 2, 0]\nproduct: [19.0, 22.0, 43.0, 50.0]\n" +
		"counts: [[1, 0], [2, 0], [3, 0], [4, 0], [5, 0]]\nrefused: invalid\n"
	if err != nil || string(out) != want {
		t.Errorf("printed %q, %v, %s; want %q", out, err, stderr.String(), want)
	}
}

// commandPattern finds a request of the nats tool in a document: its subject and its body.
var commandPattern = regexp.MustCompile(`(?m)^    \$ nats req (\S+) '([^']*)'.*\n    (.*)$`)

// TestPlainNATS: the requests of docs/gpu-jobs.md are answered as the document shows.
func TestPlainNATS(t *testing.T) {
	text, err := os.ReadFile("../../docs/gpu-jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, conn := gpuAgent(t)
	found := commandPattern.FindAllStringSubmatch(string(text), -1)
	if len(found) < 2 {
		t.Fatalf("the document has %d requests", len(found))
	}
	for _, m := range found {
		got, err := conn.NC.Request(m[1], []byte(m[2]), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		var have, want map[string]any
		if err := json.Unmarshal([]byte(m[3]), &want); err != nil {
			t.Fatalf("%s: the answer of the document: %v", m[1], err)
		}
		if err := json.Unmarshal(got.Data, &have); err != nil {
			t.Fatalf("%s: %s: %v", m[1], got.Data, err)
		}
		if !within(want, have) {
			t.Errorf("%s %s: %s; the document shows %s", m[1], m[2], got.Data, strings.TrimSpace(m[3]))
		}
	}
}

func within(want, have any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return want == have
	}
	h, ok := have.(map[string]any)
	for k, v := range w {
		ok = ok && within(v, h[k])
	}
	return ok
}
