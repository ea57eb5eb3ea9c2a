package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

var laggingJobs = flag.Int("lagging.jobs", 0, "jobs of TestLaggingReplica, and a tenth as many runs; 1,000: 25 min")

// TestLaggingReplica: the servers of a cluster stop and go on in turns, so one of them always lags
// behind, and now and then it was the leader. Nothing that is stored is said to be missing: inputs
// and outputs of jobs of GPU agents and of runs, logs of jobs, schedules, tables of keys,
// snapshots.
func TestLaggingReplica(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	jobCount, runCount := testkit.Of(100, 8), testkit.Of(10, 1)
	if *laggingJobs > 0 {
		jobCount, runCount = *laggingJobs, (*laggingJobs+9)/10
	}
	bin := binaries(t)
	c := startChaos(t, bin, chaosOptions{servers: 3})
	flags := []string{"--nats", c.urls, "--patience", "60s"}
	snapshots := t.TempDir()
	startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", c.urls, "--device", "host",
		"--replicas", "3", "--data-dir", t.TempDir(), "--snapshots", snapshots)
	startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"), "--nats", c.urls, "--replicas", "3")
	teller := c.connect()
	defer teller.Close()
	w, err := teller.Work(t.Context(), natsq.WorkerOptions{
		Name: "teller", Pool: jobs.PoolCPU, Concurrency: 4,
		Handlers: map[string]jobs.Handler{"tell": func(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
			jobs.Logger(ctx).Info("I am " + j.ID)
			return nil, nil //nolint:nilnil // it has no output
		}},
	})
	if err != nil {
		t.Fatalf("teller.Work: %v", err)
	}
	defer func() { _ = drainIn30s(w.Drain) }()

	dir := t.TempDir()
	var in bytes.Buffer // its input and output are objects
	const n = 100_000
	if err := numpy.WriteHeader(&in, "<f8", n); err != nil {
		t.Fatalf("numpy.WriteHeader: %v", err)
	}
	sorted := slices.Clone(in.Bytes())
	for i := range n {
		in.Write(binary.NativeEndian.AppendUint64(nil, uint64(n-i)))
		sorted = binary.NativeEndian.AppendUint64(sorted, uint64(i+1))
	}
	array := write(t, filepath.Join(dir, "in.npy"), in.String())
	var rows strings.Builder
	rows.WriteString("timestamp,device,value\n")
	for i := range 4000 {
		fmt.Fprintf(&rows, "%d,d%d,%d\n", 1_700_000_000+i, i%40, i%7)
	}
	table := write(t, filepath.Join(dir, "rows.csv"), rows.String())
	keyed := write(t, filepath.Join(dir, "keyed.yaml"), "name: keyed\nkey: device\nagents_per_group: 8\n"+
		"max_entities: 100\n")

	stop := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		for i := 0; ; i++ {
			p := c.servers[i%3].cmd.Process
			_ = p.Signal(syscall.SIGSTOP)
			for _, d := range []time.Duration{time.Duration(1+i%3) * time.Second, time.Second} {
				if i%8 == 7 {
					d += 9 * time.Second // the others elect leaders, and settle
				}
				select {
				case <-time.After(d):
				case <-stop:
				}
				_ = p.Signal(syscall.SIGCONT)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	defer stopping.Wait()
	defer close(stop)

	var done, failed atomic.Int64
	// The servers are away for moments, which commands may say after their patience. What is stored
	// may not be missing.
	call := func(args ...string) bool {
		code, _, stderr := exec(t.Context(), t, slices.Concat(args, flags)...)
		if code != 0 {
			failed.Add(1)
			t.Errorf("%q: exit code %d: %s", args, code, stderr)
		}
		return code == 0
	}
	var work sync.WaitGroup
	next := atomic.Int64{}
	for range 4 {
		work.Go(func() {
			conn := c.connect()
			defer conn.Close()
			for i := next.Add(1); i <= int64(jobCount) && failed.Load() == 0; i = next.Add(1) {
				out := filepath.Join(dir, fmt.Sprint(i, ".npy"))
				if call("gpu", "sort", "--in", array, "--out", out) {
					if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, sorted) {
						failed.Add(1)
						t.Errorf("job %d: the array is not sorted, error %v", i, err)
					}
					_ = os.Remove(out)
				}
				id := fmt.Sprint("tell-", i)
				if err := tells(t.Context(), conn, id); err != nil {
					failed.Add(1)
					t.Errorf("job %s: %v", id, err)
				}
				done.Add(1)
			}
		})
	}
	work.Go(func() {
		for i := 0; i < runCount && failed.Load() == 0; i++ {
			out := filepath.Join(dir, fmt.Sprint("run-", i, ".ndjson"))
			if call("run", "-f", keyed, "--input", table, "--output", out) {
				if got, err := os.ReadFile(out); err != nil || bytes.Count(got, []byte("\n")) != 4000 {
					failed.Add(1)
					t.Errorf("run %d: %d rows, want 4000, error %v", i, bytes.Count(got, []byte("\n")), err)
				}
				_ = os.Remove(out)
			}
			name := fmt.Sprint("lasting-", i)
			spec := write(t, filepath.Join(dir, name+".yaml"), "name: "+name+"\ngroups: 2\nagents_per_group: 8\n")
			_ = call("swarm", "create", "-f", spec) &&
				call("swarm", "snapshot", name, "--name", name) &&
				call("swarm", "delete", name, "--yes") &&
				call("swarm", "create", name, "--from", name, "--snapshots", snapshots) &&
				call("swarm", "delete", name, "--yes")
			done.Add(1)
		}
	})
	work.Wait()
	t.Logf("%d jobs and runs; none missed what is stored: %v", done.Load(), failed.Load() == 0)
}

// tells submits a job that logs one line, and waits for that line. It stores and reads a schedule
// too.
func tells(ctx context.Context, c *natsq.Conn, id string) error {
	if err := c.Queue.Submit(ctx, jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "tell", Spec: json.RawMessage("0"), MaxAttempts: 3,
	}); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	// A log is stored beside the job, later if its server stands still, so the reader comes again.
	lines := 0
	for end := time.Now().Add(time.Minute); lines == 0; {
		err := c.Logs.Logs(ctx, id, true, func(l jobs.LogLines) error { lines += len(l.Lines); return nil })
		if err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		if lines == 0 && time.Now().After(end) {
			return errors.New("its log has no line")
		}
	}
	s := jobs.Schedule{Version: jobs.Version, Name: id, Cron: "0 0 1 1 *", Job: jobs.Job{
		Version: jobs.Version, Pool: jobs.PoolCPU, Kind: "tell", Spec: json.RawMessage("0"), MaxAttempts: 1,
	}}
	if err := c.Schedules.AddSchedule(ctx, s); err != nil && !errors.Is(err, jobs.ErrExists) {
		return fmt.Errorf("add a schedule: %w", err)
	}
	if _, _, err := c.Schedules.Read(ctx, id); err != nil {
		return fmt.Errorf("read a schedule: %w", err)
	}
	if err := c.Schedules.RemoveSchedule(ctx, id); err != nil {
		return fmt.Errorf("remove a schedule: %w", err)
	}
	return nil
}
