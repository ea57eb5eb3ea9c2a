package main

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var deviceName = flag.String("device", "host", "device of the agent: host or cuda:0")

// TestExample: an agent of the library runs the circuits, and all three ways and the vote of a
// swarm find the best cut of a small graph.
func TestExample(t *testing.T) {
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: srv.URL(), Name: "agent"})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer conn.Close()
	dev, err := cuda.Open(ctx, *deviceName, cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	defer dev.Close()
	devices := pool.New(pool.Options{Devices: []pool.Accelerator{{Device: dev}}})
	defer devices.Close()
	handlers, err := gpujobs.New(gpujobs.Options{
		Slot: func(ctx context.Context, bytes int64) (gpujobs.Slot, error) {
			return devices.Take(ctx, func() int64 { return bytes })
		},
		Objects: conn.Objects,
	})
	if err != nil {
		t.Fatalf("gpujobs.New: %v", err)
	}
	defer handlers.Close()
	worker, err := conn.Work(ctx, natsq.WorkerOptions{Name: "agent", Pool: jobs.PoolGPU, Handlers: handlers.Jobs()})
	if err != nil {
		t.Fatalf("Work: %v", err)
	}
	defer worker.Stop()
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	defer agent.Stop()
	var out bytes.Buffer
	if err := run(ctx, srv.URL(), 12, 2, 1, &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	t.Log("\n" + out.String())
	found := regexp.MustCompile(`: +(\d+) edges[, ]`).FindAllStringSubmatch(out.String(), -1)
	if len(found) != 4 || found[0][1] != found[1][1] || found[1][1] != found[2][1] || found[2][1] != found[3][1] {
		t.Errorf("cuts %q, want four of one size:\n%s", found, out.String())
	}
}

// TestAll: the trial of all cuts finds the same as the cut that is counted edge by edge.
func TestAll(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		g := newGraph(12, random)
		most := 0
		for side := range uint64(1) << 12 {
			most = max(most, g.cut(side))
		}
		if got := g.cut(g.all()); got != most {
			t.Errorf("graph %d: a cut of %d edges, want %d", seed, got, most)
		}
		if got := g.cut(g.anneal(random, 200)); got > most {
			t.Errorf("graph %d: annealing cuts %d edges of %d", seed, got, most)
		}
	}
}

// TestFiles: each circuit of this folder is read.
func TestFiles(t *testing.T) {
	names, err := filepath.Glob("*.qasm")
	if err != nil || len(names) < 5 {
		t.Fatalf("files %v, error %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := qasm.Parse(string(text)); err != nil {
			t.Errorf("%s, %v", name, err)
		}
	}
}
