package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// served starts a server with an agent of each kind, which have connections of their own, and
// returns its URL. Jobs know dir as the folder data.
func served(t *testing.T, dir string) string {
	t.Helper()
	s := jobstest.Start(t, server.Options{})
	connect := func() *natsq.Conn {
		c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		t.Cleanup(c.Close)
		return c
	}
	log := slog.New(slog.DiscardHandler)
	dev, err := host.Open(host.Options{Logger: log, Requested: "host", Reason: "a test"})
	if err != nil {
		t.Fatalf("host.Open: %v", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{Name: "gpu", Device: dev, Queue: connect().Swarms, Logger: log})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(func() { _ = drainIn30s(agent.Drain) })
	conn := connect()
	files, err := files.New(files.Options{
		Roots: map[files.Root]string{{Name: "data"}: dir}, Objects: conn.Objects,
		Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatalf("files.New: %v", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	streamer, err := cpuagents.New(cpuagents.Options{Queue: conn.StreamJobs(), Files: files, Logger: log})
	if err != nil {
		t.Fatalf("cpuagents.New: %v", err)
	}
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "cpu", Pool: jobs.PoolCPU, Logger: log,
		Handlers: map[string]jobs.Handler{cpuagents.KindStream: streamer.Handle},
	})
	if err != nil {
		t.Fatalf("conn.Work: %v", err)
	}
	t.Cleanup(func() { _ = drainIn30s(w.Drain) })
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, log)
	if err != nil {
		t.Fatalf("conn.Serve: %v", err)
	}
	t.Cleanup(g.Close)
	return s.URL()
}

// TestDetach: the output of a job outlives who has submitted it: another process waits for it, and
// fetches it by its id.
func TestDetach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := served(t, dir)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := write(t, filepath.Join(dir, "in.csv"), series(1, 60)+"x,1\n")
	bad := write(t, filepath.Join(dir, "bad.csv"), series(1, 60)+strings.Repeat("x,1\n", 7))
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		return expect(t, want, append(args, "--nats", url)...)
	}
	read := func(path string) []byte {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("os.ReadFile: %v", err)
		}
		return data
	}
	// A run that stays: its id is the first that it says, in JSON too.
	plain := filepath.Join(dir, "plain.csv")
	_, errs := run(0, "run", "-f", spec, "--input", in, "--output", plain)
	if !strings.HasPrefix(errs, "job ") || !strings.Contains(errs, "--attach") {
		t.Errorf("no id: %s", errs)
	}
	_, errs = run(0, "run", "-f", spec, "--input", in, "--output", filepath.Join(dir, "b.csv"), "--progress", "json")
	var said struct{ Job string }
	if first, _, _ := strings.Cut(errs, "\n"); json.Unmarshal([]byte(first), &said) != nil ||
		jobs.CheckID("job", said.Job) != nil {
		t.Errorf("no id: %s", errs)
	}
	run(command.ExitUsage, "run", "--attach", said.Job, "--output", filepath.Join(dir, "again.csv")) // it was fetched

	out, _ := run(0, "run", "-f", spec, "--input", in, "--detach", "--output", "any.csv")
	id := strings.TrimSpace(out)
	run(0, "job", "watch", id)
	for range 2 { // it stays until it is attached to
		fetched := filepath.Join(dir, "fetched.csv")
		run(0, "job", "output", id, "-o", fetched)
		if !bytes.Equal(read(fetched), read(plain)) {
			t.Error("job output writes other decisions")
		}
	}
	if _, errs = run(command.ExitUsage, "run", "--attach", id, "--output",
		filepath.Join(dir, "x.parquet")); !strings.Contains(errs, ".csv") {
		t.Errorf("another format: %s", errs)
	}
	attached := filepath.Join(dir, "attached.csv")
	out, _ = run(0, "run", "--attach", id, "--output", attached)
	if !bytes.Equal(read(attached), read(plain)) || !strings.Contains(out, "60 decisions") ||
		len(read(filepath.Join(dir, "attached.rejects.ndjson"))) == 0 {
		t.Errorf("run --attach writes other decisions, or no rejects: %s", out)
	}
	// Too many rejects fail a run after its output is written, also for a process that attaches.
	few, tooMany := filepath.Join(dir, "few.csv"), `7 of 67 rows are rejected, more than the share of 0.1`
	if _, errs := run(1, "run", "-f", spec, "--input", bad, "--output", few); !strings.Contains(errs, tooMany) ||
		!bytes.Equal(read(few), bytes.ReplaceAll(read(plain), []byte("in.csv"), []byte("bad.csv"))) {
		t.Errorf("too many rejects: %s", errs)
	}
	out, _ = run(0, "run", "-f", spec, "--input", bad, "--detach", "--output", "any.csv")
	if _, errs := run(1, "run", "--attach", strings.TrimSpace(out), "--output", few); !strings.Contains(errs, tooMany) {
		t.Errorf("too many rejects, attached: %s", errs)
	}
	run(0, "run", "-f", spec, "--input", bad, "--output", few, "--max-rejects", "0.11")
	run(command.ExitUsage, "job", "output", id)
	run(command.ExitUsage, "run", "--attach", id, "-f", spec, "--output", attached)
	if code, _, _ := exec(t.Context(), t, "run", "--attach", id, "--output", attached, "--nats",
		""); code != command.ExitUsage {
		t.Errorf("attached without a cluster: exit %d", code)
	}
}

// TestRedriveRun: a detached run over a file of the agent's machine that is not there leaves a dead
// letter, which can be redriven when the file has come.
func TestRedriveRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := served(t, dir)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	sources := write(t, filepath.Join(dir, "sources.json"), `[{"name": "late", "uri": "file:data/late.csv"}]`)
	run := func(want int, args ...string) string {
		t.Helper()
		stdout, _ := expect(t, want, append(args, "--nats", url)...)
		return stdout
	}
	output := filepath.Join(dir, "out.csv")
	run(0, "run", "-f", spec, "--sources", sources, "--output", output, "--detach")
	var letters []struct{ ID string }
	testkit.Until(t, "a dead letter", func() bool {
		list := run(0, "dlq", "list", "-o", "json")
		if err := json.Unmarshal([]byte(list), &letters); err != nil {
			t.Fatalf("json.Unmarshal: %v\n%s", err, list)
		}
		return len(letters) > 0
	})
	write(t, filepath.Join(dir, "late.csv"), series(1, 60))
	run(0, "dlq", "redrive", letters[0].ID)
	if out := run(0, "run", "--attach", letters[0].ID, "--output", output); !strings.Contains(out, "60 decisions") {
		t.Errorf("the run that was repeated prints\n%s\nwant 60 decisions", out)
	}
}

// drainIn30s bounds a call that ends an agent.
func drainIn30s(fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return fn(ctx)
}

// TestOutputIsKept: a run that cannot write its output keeps it, whatever fails, and so does one
// that attaches. The output is removed when it is delivered.
func TestOutputIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := served(t, dir)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := write(t, filepath.Join(dir, "in.csv"), series(1, 900)+strings.Repeat("x,1\n", 900))
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v", err)
	}
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=16k"); errors.Is(err, syscall.EPERM) {
		t.Skip("only root may mount a disk")
	} else if err != nil {
		t.Fatalf("mount a disk of 16 KiB: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(full, 0) })
	run := func(want int, args ...string) string {
		t.Helper()
		if args[0] == "run" { // half of the rows are rejected on purpose
			args = append(args, "--max-rejects", "1")
		}
		stdout, stderr := expect(t, want, append(args, "--nats", url)...)
		if slices.Contains(args, "--detach") { // its output is the id
			return "job " + stdout + " --attach " + stdout
		}
		return stderr
	}
	good := func(name string) string { return filepath.Join(dir, name) }
	plain := good("plain.ndjson")
	run(0, "run", "-f", spec, "--input", in, "--output", plain)
	want, err := os.ReadFile(plain)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	for what, places := range map[string][]string{
		"output":  {"--output", filepath.Join(full, "a.ndjson")},
		"rejects": {"--output", good("b.ndjson"), "--rejects", filepath.Join(full, "b.rejects")},
		"report":  {"--output", good("c.ndjson"), "--report", filepath.Join(full, "c.html")},
		"stream":  {"--output", "/dev/full"},
		"detach":  {"--detach", "--output", "any.ndjson"},
	} {
		code := 1
		if what == "detach" {
			code = 0
		}
		said := run(code, append([]string{"run", "-f", spec, "--input", in}, places...)...)
		id := regexp.MustCompile(`job ([\w-]+)`).FindStringSubmatch(said)
		if id == nil || !strings.Contains(said, "--attach "+id[1]) {
			t.Errorf("%s: no way to the output: %s", what, said)
			continue
		}
		for range 2 {
			said = run(1, "run", "--attach", id[1], "--output", filepath.Join(full, "d.ndjson"))
			if !strings.Contains(said, "the output is kept: exoswarm run --attach "+id[1]) {
				t.Errorf("%s: attach without space says\n%s", what, said)
			}
		}
		fetched := good(what + ".fetched.ndjson")
		run(0, "run", "--attach", id[1], "--output", fetched)
		if got, err := os.ReadFile(fetched); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes are fetched, %v, want %d", what, len(got), err, len(want))
		}
		run(command.ExitUsage, "run", "--attach", id[1], "--output", fetched) // it was delivered
	}
}
