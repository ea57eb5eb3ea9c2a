package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// TestChaosGraphs: jobs that wait for others are all done, each after its parents, though workers
// and the server are killed while they flow.
func TestChaosGraphs(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	c := startChaos(t, binaries(t), chaosOptions{servers: 1, workers: 2})
	conn := c.connect()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var mu sync.Mutex
	var graphs [][]jobs.Job
	uncertain := 0
	var submitters sync.WaitGroup
	for who := range 3 {
		submitters.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				g := diamond(fmt.Sprintf("g%d-%d", who, n))
				for {
					err := conn.Queue.SubmitBatch(ctx, g)
					if err == nil || errors.Is(err, jobs.ErrExists) { // ours: nobody else uses these ids
						break
					}
					if !errors.Is(err, jobs.ErrUnavailable) {
						t.Errorf("submit: %v", err)
						return
					}
					mu.Lock()
					uncertain++
					mu.Unlock()
				}
				mu.Lock()
				graphs = append(graphs, g)
				mu.Unlock()
			}
		})
	}
	// A fault comes when some graphs more have been submitted and some results are there, so that
	// it finds work at every stage.
	some := func(n int) {
		t.Helper()
		for {
			mu.Lock()
			have := len(graphs)
			mu.Unlock()
			if have >= n {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%d graphs of %d were submitted", have, n)
			}
		}
	}
	want := 0
	for i := range 4 * *chaosFaults {
		want += 15
		some(want)
		if i%4 == 3 {
			c.servers[0].end(t, syscall.SIGKILL)
			c.startServer(0)
			continue
		}
		c.workers[i%2].end(t, syscall.SIGKILL)
		c.startWorker(i % 2)
	}
	some(want + 15)
	close(stop)
	submitters.Wait()
	for _, g := range graphs {
		var last time.Time
		for i, j := range g {
			r, err := conn.Results.Result(ctx, j.ID)
			if err != nil || r.Status != jobs.Done {
				t.Fatalf("result %+v, error %v; want a job that is done", r, err)
			}
			if i < len(g)-1 && r.Finished.After(last) {
				last = r.Finished
			}
			if i == len(g)-1 && r.Finished.Before(last) {
				t.Errorf("job %s ended before one that it waits for", j.ID)
			}
		}
	}
	left(t, ctx, conn)
	t.Logf("%d graphs of 5 jobs, %d kills, %d submissions repeated", len(graphs), 4**chaosFaults, uncertain)
}

// diamond is a job, three that wait for it, and one that waits for those.
func diamond(name string) []jobs.Job {
	one := func(id string, after ...string) jobs.Job {
		return jobs.Job{
			Version: jobs.Version, ID: name + id, Pool: jobs.PoolCPU, Kind: "chaos",
			Spec: json.RawMessage("1"), After: after,
		}
	}
	return []jobs.Job{
		one("a"), one("b", name+"a"), one("c", name+"a"), one("d", name+"a"),
		one("e", name+"b", name+"c", name+"d"),
	}
}

// left fails when a job still waits.
func left(t *testing.T, ctx context.Context, conn *natsq.Conn) { //nolint:revive // t first, as in all tests here
	t.Helper()
	err := conn.Queue.Jobs(ctx, jobs.PoolCPU, func(j jobs.Job) bool {
		if missing, err := conn.Queue.Missing(ctx, j); err != nil || len(missing) > 0 {
			t.Errorf("job %s still waits for %v: %v", j.ID, missing, err)
		}
		return true
	})
	if err != nil {
		t.Errorf("conn.Queue.Jobs: %v", err)
	}
}
