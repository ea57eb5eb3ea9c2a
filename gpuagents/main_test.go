package gpuagents

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, 8)
}

func openHost(t *testing.T) device.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Poison: true})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil { // a leak of the agent is an error here
			t.Errorf("d.Close: %v, want no error", err)
		}
	})
	return d
}

// noLogs is a queue without shards.
type noLogs struct{}

// Log implements Queue.
func (noLogs) Log(string, int, swarms.Direction) swarms.Log { return nil }

// eventually waits until a condition is met.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !met() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("not met: %s", what)
		}
	}
}
