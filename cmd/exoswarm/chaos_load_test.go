package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// resident is the memory of a process in bytes, without what it shares with files.
func resident(t *testing.T, p *process) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("no memory figures here:", err)
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatalf("no RssAnon of process %d", p.cmd.Process.Pid)
	return 0
}

// TestChaosOverload: callers that submit twice what the workers do are refused, with the reason,
// when the queue is full; what was accepted is done, and neither the server nor the workers grow
// with it.
func TestChaosOverload(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const (
		room = 2000
		size = 200
	)
	c := startChaos(t, binaries(t), chaosOptions{servers: 1, workers: 2})
	conn := c.connect()
	defer conn.Close()
	nc, err := nats.Connect(c.urls)
	if err != nil {
		t.Fatalf("nats.Connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream.New: %v", err)
	}
	stream, err := js.Stream(t.Context(), "EXO_JOBS_CPU")
	if err != nil {
		t.Fatalf("js.Stream EXO_JOBS_CPU: %v", err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = room
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatalf("js.UpdateStream: %v", err)
	}
	var mu sync.Mutex
	submitted := map[string]time.Time{}
	var took []time.Duration
	watch, err := nc.Subscribe("exo.res.*", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if at, ok := submitted[m.Subject[len("exo.res."):]]; ok {
			took = append(took, time.Since(at))
		}
	})
	if err != nil {
		t.Fatalf("nc.Subscribe exo.res.*: %v", err)
	}
	if err := watch.SetPendingLimits(-1, -1); err != nil {
		t.Fatalf("watch.SetPendingLimits: %v", err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatalf("nc.Flush: %v", err)
	}
	load := &flow{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var refused, early, late int
	var memory [2]int64 // of all processes, when the queue was full for the first time and at the end
	sum := func() (n int64) {
		for _, p := range append(slices.Clone(c.workers), c.servers...) {
			n += resident(t, p)
		}
		return n
	}
	total := max(4000, 3000**chaosFaults)
	for n := 0; len(load.acked) < total; n++ {
		batch, ids := make([]jobs.Job, size), make([]string, size)
		mu.Lock()
		for i := range batch {
			ids[i] = fmt.Sprintf("o-%d-%d", n, i)
			batch[i] = jobs.Job{
				Version: jobs.Version, ID: ids[i], Pool: jobs.PoolCPU, Kind: "chaos",
				Spec: json.RawMessage("1"),
			}
			submitted[ids[i]] = time.Now()
		}
		mu.Unlock()
		err := conn.Queue.SubmitBatch(ctx, batch)
		switch {
		case err == nil:
			load.ack(ids)
			continue
		case !errors.Is(err, jobs.ErrFull):
			t.Fatal(err)
		case !strings.Contains(err.Error(), "wait for workers"):
			t.Errorf("refused without what to do: %v", err)
		}
		mu.Lock()
		for _, id := range ids {
			delete(submitted, id)
		}
		mu.Unlock()
		if refused++; memory[0] == 0 {
			memory[0], early = sum(), len(load.acked)
		}
		late = len(load.acked)
	}
	memory[1] = sum()
	if lost := load.lost(t, conn); lost > 0 {
		t.Errorf("%d of %d accepted jobs have no result", lost, len(load.acked))
	}
	if refused == 0 || late-early < room/2 {
		t.Fatalf("refused %d times, between %d and %d jobs: there was no overload", refused, early, late)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(took)
	t.Logf("overload: accepted %d, refused %d batches, lost 0; from submission to result p50 %v, p99 %v; memory of "+
		"server and workers %d MiB, then %d",
		len(load.acked), refused, took[len(took)/2].Round(time.Millisecond),
		took[len(took)*99/100].Round(time.Millisecond), memory[0]>>20, memory[1]>>20)
	// What results take of the server's memory belongs to their number, and is some 100 bytes each.
	if grown := memory[1] - memory[0]; grown > 64<<20+1024*int64(total) {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}
