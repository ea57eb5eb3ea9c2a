package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// explained waits until exoswarm explains something by a cause, and returns what it says.
func explained(t *testing.T, url string, cause doctor.Cause, what ...string) doctor.Reason {
	t.Helper()
	var r doctor.Reason
	testkit.Until(t, fmt.Sprintf("exoswarm %v to say %s", what, cause), func() bool {
		out := asked(t, url, append(what, "-o", "json")...)
		r = doctor.Reason{}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("exoswarm %v: %v\n%s", what, err, out)
		}
		return r.Cause == cause
	})
	return r
}

// asked runs a command of exoswarm and returns its standard output. Its exit status is not looked
// at.
func asked(t *testing.T, url string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, filepath.Join(binaries(t), "exoswarm"), append(args, "--nats", url)...)
	out, _ := cmd.Output()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("exoswarm %v does not end: %s", args, out)
	}
	return string(out)
}

// connectTo connects to the queue of real processes.
func connectTo(t *testing.T, url string) *natsq.Conn {
	t.Helper()
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: url})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestExplainProcesses: on real processes, a dead GPU agent and its successor, a dead worker, a
// NATS server that is away, one whose disk is full, and servers without a leader are named.
func TestExplainProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	t.Run("agents", func(t *testing.T) {
		t.Parallel()
		c := startCluster(t, binaries(t))
		dir := t.TempDir()
		spec := write(t, filepath.Join(dir, "crowd.yaml"),
			"name: crowd\naddressed: agent\ncell: {kind: gru, params: {hidden: 8}}\n"+
				"agents: 10000\nagents_per_group: 100\nfeatures: [a]\nvote: {candidates: [x, y], rule: "+
				"majority}\nseed: 1\n")
		asked(t, c.url, "swarm", "create", "-f", spec)
		asked(t, c.url, "swarm", "tick", "crowd", "--count", "3")
		explained(t, c.url, doctor.Idle, "swarm", "explain", "crowd")
		c.gpu.end(t, syscall.SIGKILL)
		if r := explained(t, c.url, doctor.HolderLost, "swarm", "explain", "crowd"); !r.Stuck ||
			!strings.Contains(r.Cure, "start a GPU agent") {
			t.Errorf("a dead GPU agent: %+v, want that somebody must start one", r)
		}
		c.startGPU(t)
		explained(t, c.url, doctor.Idle, "swarm", "explain", "crowd")

		// A job that never ends: its input is a FIFO that stays open.
		fifo := filepath.Join(dir, "rows.csv")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatalf("syscall.Mkfifo: %v", err)
		}
		series := write(t, filepath.Join(dir, "series.yaml"), "name: series\nagents_per_group: 16\n")
		held, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatalf("os.OpenFile: %v", err)
		}
		defer held.Close()
		if _, err := held.WriteString("timestamp,value\n2026-01-01 00:00:00,1\n"); err != nil {
			t.Fatalf("held.WriteString: %v", err)
		}
		run := osexec.Command(filepath.Join(binaries(t), "exoswarm"), "run", "-f", series, "--input", fifo, "--output",
			filepath.Join(dir, "out.ndjson"), "--nats", c.url, "--progress", "json")
		ids := make(chan string, 1)
		if err := run.Start(); err != nil {
			t.Fatalf("run.Start: %v", err)
		}
		defer func() { _ = run.Process.Kill(); _ = run.Wait() }()
		go func() {
			for t.Context().Err() == nil {
				var all []struct{ ID, State string }
				if json.Unmarshal([]byte(asked(t, c.url, "job", "list", "-o", "json")), &all) == nil && len(all) > 0 &&
					all[0].State == "running" {
					ids <- all[0].ID
					return
				}
			}
		}()
		var id string
		select {
		case id = <-ids:
		case <-time.After(time.Minute):
			t.Fatal("the run has no job")
		}
		explained(t, c.url, doctor.Running, "job", "explain", id)

		// An attempt that fails, of a handler that logs nothing: it waits for the next one.
		conn := connectTo(t, c.url)
		worker, err := conn.Work(t.Context(), natsq.WorkerOptions{
			Name: "flaky", Pool: jobs.PoolCPU, Handlers: map[string]jobs.Handler{
				"flaky": func(context.Context, jobs.Job, func(any)) (any, error) {
					return nil, jobs.Retry(errors.New("not today"))
				},
			},
		})
		if err != nil {
			t.Fatalf("conn.Work: %v", err)
		}
		defer worker.Stop()
		asked(t, c.url, "submit", "--kind", "flaky", "--id", "flaky", "--spec", "{}", "--max-attempts", "100")
		if r := explained(t, c.url, doctor.RetryBackoff, "job", "explain", "flaky"); !strings.Contains(
			strings.Join(r.Evidence, " "), "not today") {
			t.Errorf("a job in back-off: %+v, want the error of its attempt", r)
		}
		c.cpu.end(t, syscall.SIGKILL)
		explained(t, c.url, doctor.LeaseOfDead, "job", "explain", id)
		c.nats.end(t, syscall.SIGKILL)
		explained(t, c.url, doctor.NoConnection, "swarm", "explain", "crowd")
		explained(t, c.url, doctor.NoConnection, "job", "explain", id)
	})
	t.Run("leader", func(t *testing.T) {
		t.Parallel()
		r := startRecovery(t.Context(), t, 3, 0)
		defer r.conn.Close()
		asked(t, r.url, "submit", "--kind", "nobody", "--id", "j", "--spec", "{}")
		explained(t, r.url, doctor.NoAgent, "job", "explain", "j")
		for _, m := range r.nats[1:] {
			m.end(t, syscall.SIGKILL)
		}
		explained(t, r.url, doctor.NoLeader, "job", "explain", "j")
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
			t.Skipf("no file system of our own: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(binaries(t), "exoswarm"), "nats", "--port",
			"0",
			"--data-dir", dir)
		asked(t, url, "init", "--yes")
		asked(t, url, "submit", "--kind", "nobody", "--id", "j", "--spec", "{}")
		if err := os.WriteFile(filepath.Join(dir, "others"), make([]byte, 33<<20), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v", err)
		}
		explained(t, url, doctor.DiskFull, "job", "explain", "j")
		if out := asked(t, url, "doctor", "nats"); !strings.Contains(out, "nearly full") {
			t.Errorf("exoswarm doctor: %s, want that the disk is nearly full", out)
		}
		if err := os.Remove(filepath.Join(dir, "others")); err != nil {
			t.Fatalf("os.Remove: %v", err)
		}
		explained(t, url, doctor.NoAgent, "job", "explain", "j")
	})
}
