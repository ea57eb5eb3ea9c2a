package main

import (
	"bytes"
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var deviceName = flag.String("device", "host", "device of the agent: host or cuda:0")

// TestExample: both jobs are submitted, an agent of the library executes them, and their results
// are printed. The host device refuses the kernel.
func TestExample(t *testing.T) {
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		Objects: conn.Objects, AllowKernels: true,
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
	var out bytes.Buffer
	if err := run(ctx, srv.URL(), &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	want := "matrix product: [58 64 139 154]\nvector sum: 0 3 ... 2997\n"
	if *deviceName == "host" {
		want = "matrix product: [58 64 139 154]\nvector sum: job "
	}
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	t.Log(out.String())
}
