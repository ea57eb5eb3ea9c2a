package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// TestOwner: a folder that a process owns has one owner. Every other process that would use it ends
// with an error that names the folder and the owner, also when somebody has removed the lock file,
// and a process that was killed owns nothing.
func TestOwner(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), "name: test\nagents_per_group: 4\n")
	rows := write(t, filepath.Join(t.TempDir(), "rows.csv"), series(1, 20))
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	nats := []string{"exoswarm", "nats", "--port", "0", "--data-dir"}
	serve := []string{"exoswarm", "serve", "--nats-port", "0", "--listen", "127.0.0.1:0", "--data-dir"}
	cpu := []string{"cpuagent", "--nats", url, "--data-dir"}
	gpu := []string{"gpuagent", "--nats", url, "--device", "host", "--data-dir"}
	tier := []string{"gpuagent", "--nats", url, "--device", "host", "--tier"}
	detect := []string{
		"exoswarm", "detect", "-f", spec, "--follow", rows, "--output", filepath.Join(t.TempDir(), "out"),
		"--log-level", "debug", "--data-dir",
	}
	type second struct {
		args []string
		dir  string // below the folder of the first
	}
	for name, c := range map[string]struct {
		ready  string
		first  []string
		prefix string // of the folder
		others []second
	}{
		"server": {"nats is ready", nats, "", []second{{nats, ""}, {serve, ""}}},
		"serve": {"level=INFO msg=\"cpuagent is ready", serve, "", []second{
			{serve, ""}, {nats, "nats"}, {gpu, "gpu"}, {cpu, "cpu"}, {nats, ""},
		}},
		"GPU agent": {"gpuagent is ready", gpu, "", []second{{gpu, ""}, {cpu, ""}}},
		"tier":      {"gpuagent is ready", tier, "nvme=", []second{{tier, ""}, {gpu, ""}}},
		"CPU agent": {"cpuagent is ready", cpu, "", []second{{cpu, ""}}},
		"detector":  {"serving shard", detect, "", []second{{detect, ""}, {nats, "kept/nats"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			begin := func() *process {
				t.Helper()
				args := append(c.first[1:len(c.first):len(c.first)], c.prefix+dir)
				p, _ := startProcess(t, c.ready, filepath.Join(bin, c.first[0]), args...)
				return p
			}
			refused := func(s second, owner string) {
				t.Helper()
				folder, prefix := filepath.Join(dir, s.dir), ""
				if s.args[len(s.args)-1] == "--tier" {
					prefix = "nvme="
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				args := append(s.args[1:len(s.args):len(s.args)], prefix+folder)
				var stderr bytes.Buffer
				cmd := osexec.CommandContext(ctx, filepath.Join(bin, s.args[0]), args...)
				cmd.Stderr = &stderr
				err := cmd.Run()
				var exit *osexec.ExitError
				want := folder + ": locked by another process" + owner
				if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(stderr.String(), want) {
					t.Errorf("a second owner, %q: error %v, want exit code 2 and %q:\n%s", s.args, err, want, &stderr)
				}
			}
			p := begin()
			for _, s := range c.others {
				refused(s, fmt.Sprintf(" (pid %d on ", p.cmd.Process.Pid))
			}
			removeLocks(t, dir)
			refused(c.others[0], "")
			p.end(t, syscall.SIGKILL)
			begin()
		})
	}
	t.Run("page store", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		o := pagestore.Options{PageSize: 4096, New: true, Tiers: []pagestore.Tier{{
			Name: "ssd", Dir: dir, Capacity: 256 << 20,
		}}}
		s, err := pagestore.Open(o)
		if err != nil {
			t.Fatalf("pagestore.Open: %v", err)
		}
		if _, err := pagestore.Open(o); !errors.Is(err, tiers.ErrLocked) ||
			!strings.Contains(err.Error(), dir+": locked by another process (pid ") {
			t.Errorf("open again: %v, want a refusal that names the folder", err)
		}
		code, _, stderr := exec(t.Context(), t, "tier", "verify", dir)
		if code != 1 || !strings.Contains(stderr, dir+": locked by another process (pid ") {
			t.Errorf("tier verify: exit code %d, %s; want a refusal that names the folder", code, stderr)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("s.Close: %v", err)
		}
		// A process that another test starts at this moment holds the lock until it has begun.
		testkit.Until(t, "tier verify of a closed store", func() bool {
			code, _, stderr := exec(t.Context(), t, "tier", "verify", dir)
			if code != 0 && !strings.Contains(stderr, "locked by another process") {
				t.Fatalf("tier verify of a closed store: exit code %d, %s", code, stderr)
			}
			return code == 0
		})
	})
}

// removeLocks removes all lock files below a folder, as somebody does who takes them for
// remainders.
func removeLocks(t *testing.T, dir string) {
	t.Helper()
	n := 0
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.Name() == "lock" || d.Name() == "embedded.lock") {
			n++
			err = os.Remove(path)
		}
		return err
	}); err != nil || n == 0 {
		t.Fatalf("remove lock files: %d, error %v", n, err)
	}
}
