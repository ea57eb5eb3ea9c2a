package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// breakScratch makes a folder unusable and returns how to mend it.
type breakScratch func(t *testing.T, dir string) (mend func())

// fill fills the file system of dir, which is a small separate file system.
func fill(t *testing.T, dir string) (mend func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatalf("os.Create: %v", err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: error %v, want that it is full", err)
	}
	if err := f.Close(); err != nil {
		t.Fatalf("f.Close: %v", err)
	}
	return func() { _ = os.Remove(f.Name()) }
}

// readOnly mounts dir over itself for reading only. The mount below cannot become read-only: its
// owner has a lock file open there.
func readOnly(t *testing.T, dir string) (mend func()) {
	t.Helper()
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Fatalf("syscall.Mount: %v", err)
	}
	mend = func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		mend()
		t.Fatalf("syscall.Mount: %v", err)
	}
	return mend
}

// away moves dir elsewhere.
func away(t *testing.T, dir string) (mend func()) {
	t.Helper()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatalf("os.Rename: %v", err)
	}
	return func() { _ = os.Rename(dir+".away", dir) }
}

// TestScratch has the scratch folder of a CPU agent become full, read-only and absent. The agent
// takes no job and says so, no job fails, and it continues by itself.
func TestScratch(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: test\nagents_per_group: 16\n"))
	if err != nil {
		t.Fatalf("swarm.Parse swarm.yaml: %v", err)
	}
	spec, err := json.Marshal(parsed)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	c := &processes{bin: bin, natsDir: t.TempDir()}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--fast", "--data-dir", c.natsDir)
	c.startGPU(t)
	for name, how := range map[string]breakScratch{"full": fill, "read-only": readOnly, "absent": away} {
		t.Run(name, func(t *testing.T) {
			dir, scratch := t.TempDir(), filepath.Join(t.TempDir(), "scratch")
			if err := os.Mkdir(scratch, 0o755); err != nil {
				t.Fatalf("os.Mkdir: %v", err)
			}
			if name != "absent" {
				if err := syscall.Mount("tmpfs", scratch, "tmpfs", 0, "size=4m"); err != nil {
					t.Skipf("no file system of our own: %v", err)
				}
				t.Cleanup(func() { _ = syscall.Unmount(scratch, syscall.MNT_DETACH) })
			}
			var url string
			c.cpu, url = startProcess(t, `serving metrics.*url=(\S+)/metrics`, filepath.Join(bin, "cpuagent"), "--nats",
				c.url, "--root", "d="+dir, "--data-dir", scratch, "--memory", "1GiB", "--metrics", "127.0.0.1:0")
			defer c.cpu.end(t, syscall.SIGTERM)
			id := "scratch-" + name
			write(t, filepath.Join(dir, "a.csv"), series(1, 100))
			write(t, filepath.Join(dir, "manifest"), `[{"name":"a","uri":"file:d/a.csv"}]`)
			job, err := json.Marshal(cpuagents.StreamSpec{
				Name: "test", Spec: spec, Candidates: []string{"normal", "elevated", "anomalous"},
				Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
				Manifest: "file:d/manifest", Output: "file:d/out.ndjson", Rejects: "file:d/rejects",
				Summary: "file:d/summary",
			})
			if err != nil {
				t.Fatalf("json.Marshal: %v", err)
			}
			get := func(path string) (int, string) {
				r, err := http.Get(url + path)
				if err != nil {
					t.Fatalf("http.Get: %v", err)
				}
				defer r.Body.Close()
				b, _ := io.ReadAll(r.Body)
				return r.StatusCode, string(b)
			}
			testkit.Until(t, "readiness", func() bool {
				status, _ := get("/healthz")
				return status == http.StatusOK && strings.Contains(c.cpu.log.String(), "cpuagent is ready")
			})
			mend := how(t, scratch)
			defer mend()
			cmd := osexec.CommandContext(t.Context(), filepath.Join(bin, "exoswarm"), "submit", "--nats", c.url,
				"--kind", "stream", "--id", id, "--max-attempts", "1",
				"--spec", "@"+write(t, filepath.Join(dir, "job.json"), string(job)), "--wait")
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatalf("cmd.Start: %v", err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			testkit.Until(t, "the state of the agent", func() bool {
				_, list, _ := exec(t.Context(), t, "agent", "list", "--nats", c.url, "-o", "jsonl")
				return strings.Contains(list, "no scratch")
			})
			if status, text := get("/healthz"); status != http.StatusServiceUnavailable ||
				!strings.Contains(text, scratch) {
				t.Errorf("/healthz: %d %s", status, text)
			}
			if _, text := get("/metrics"); !strings.Contains(text, "exoswarm_cpuagent_scratch_usable 0") {
				t.Error("the metric does not say so")
			}
			select {
			case err := <-ended:
				t.Fatalf("the job has ended: %v: %s", err, said.String())
			default:
			}
			mend()
			if err := <-ended; err != nil {
				t.Fatalf("%v: %s\n%s", err, said.String(), c.cpu.log)
			}
			for _, line := range []string{"the scratch folder cannot be used", "the scratch folder can be used again"} {
				if n := strings.Count(c.cpu.log.String(), line); n != 1 {
					t.Errorf("%q is logged %d times:\n%s", line, n, c.cpu.log)
				}
			}
		})
	}
}
