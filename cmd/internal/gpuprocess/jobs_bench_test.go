package gpuprocess

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// BenchmarkJob measures the time from the submission of a small reduction to its result, one job at
// a time: in pool gpu by the process of an agent on the device of the flag -device, and in pool cpu
// by a worker with the same handlers on the host device.
func BenchmarkJob(b *testing.B) {
	for _, p := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		b.Run(string(p), func(b *testing.B) {
			r := newRigAt(b, 0)
			if p == jobs.PoolGPU {
				r.spawn(b, "--device", *benchDevice, "--log-level", "info")
			} else {
				workOnCPU(b, r)
			}
			took := make([]time.Duration, 0, b.N)
			for i := range b.N + 20 {
				j, err := gpujob.NewJob(fmt.Sprint("j", i), &gpujob.ReduceSpec{
					Op: "sum", In: gpujob.From(make([]float32, 256)),
				})
				if err != nil {
					b.Fatalf("NewJob: %v", err)
				}
				j.Pool = p
				began := time.Now()
				if err := r.conn.Queue.Submit(b.Context(), j); err != nil {
					b.Fatalf("Submit: %v", err)
				}
				if got, err := r.conn.Results.Result(b.Context(), j.ID); err != nil || got.Error != nil {
					b.Fatalf("result: %+v, %v", got.Error, err)
				}
				if i >= 20 { // the first ones make consumers and load kernels
					took = append(took, time.Since(began))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// workOnCPU starts a worker of pool cpu that reduces arrays on the host device, over a connection
// of its own.
func workOnCPU(b *testing.B, r *rig) {
	b.Helper()
	conn, err := natsq.Connect(b.Context(), natsconn.Options{URL: r.server.URL(), Name: "worker"})
	if err != nil {
		b.Fatalf("Connect: %v", err)
	}
	b.Cleanup(conn.Close)
	dev, err := cuda.Open(b.Context(), "host", cuda.Options{})
	if err != nil {
		b.Fatalf("cuda.Open: %v", err)
	}
	b.Cleanup(func() { _ = dev.Close() })
	devices := pool.New(pool.Options{Devices: []pool.Accelerator{{Device: dev}}})
	b.Cleanup(devices.Close)
	handlers, err := gpujobs.New(gpujobs.Options{Slot: func(ctx context.Context, bytes int64) (gpujobs.Slot, error) {
		return devices.Take(ctx, func() int64 { return bytes })
	}})
	if err != nil {
		b.Fatalf("gpujobs.New: %v", err)
	}
	b.Cleanup(handlers.Close)
	worker, err := conn.Work(b.Context(), natsq.WorkerOptions{
		Name: "worker", Pool: jobs.PoolCPU, Handlers: handlers.Jobs(), Batches: batches(handlers),
	})
	if err != nil {
		b.Fatalf("Work: %v", err)
	}
	b.Cleanup(worker.Stop)
}
