package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// mountedDisk returns a folder on a separate disk of mib MiB, an ext4 in a file or a tmpfs.
func mountedDisk(t *testing.T, kind string, mib int64, flags uintptr) string {
	t.Helper()
	if kind == "ext4" {
		return newDisk(t, mib).dir
	}
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%dm", mib))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("only root may mount a disk")
	}
	if err != nil {
		t.Fatalf("syscall.Mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("syscall.Unmount: %v", err)
		}
	})
	return dir
}

// leave writes a file until left bytes are free on its disk.
func leave(t *testing.T, name string, left int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("os.OpenFile: %v", err)
	}
	defer f.Close()
	for size := int64(1 << 20); size >= 4096; {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(filepath.Dir(name), &fs); err != nil {
			t.Fatalf("syscall.Statfs: %v", err)
		}
		if free := int64(fs.Bavail) * fs.Bsize; free-size < left {
			size /= 2
			continue
		}
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatalf("f.Write: %v", err)
		}
	}
}

// fullDiskProcess is a process whose folder is on a disk that fills up.
type fullDiskProcess struct {
	ready string
	args  []string // the last one is the flag of the folder
	value string   // before the folder
	ends  string   // what the process says where it cannot go on
}

// TestFillingDisk: a process whose disk is full does not die of a signal. It continues, or ends
// with a sentence about the space, and works again when space was freed. Somebody else fills the
// disk while the process writes, in steps, so that every kind of write fails once.
func TestFillingDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	const noSpace = "no space left on the disk of|bytes left, a server needs"
	spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), "name: full\ngroups: 16\nagents_per_group: 64\n")
	rows := write(t, filepath.Join(t.TempDir(), "rows.csv"), series(1, 2000))
	gpu := []string{
		"gpuagent", "--nats", url, "--device", "host", "--page-memory", "1048576", "--host-page-memory", "1048576",
	}
	for name, c := range map[string]fullDiskProcess{
		"serve": {"the dashboard is ready", []string{
			"exoswarm", "serve", "--nats-port", "0", "--listen", "127.0.0.1:0", "--device", "host", "--data-dir",
		}, "", noSpace},
		"nats":      {`nats is ready`, []string{"exoswarm", "nats", "--port", "0", "--data-dir"}, "", noSpace},
		"GPU agent": {"gpuagent is ready", append(gpu[:len(gpu):len(gpu)], "--data-dir"), "", ""},
		"tier":      {"gpuagent is ready", append(gpu[:len(gpu):len(gpu)], "--tier"), "nvme=", ""},
		"CPU agent": {"cpuagent is ready", []string{"cpuagent", "--nats", url, "--data-dir"}, "", ""},
	} {
		for _, kind := range []string{"tmpfs", "ext4"} {
			if !testkit.Long() && (kind == "ext4" || name == "CPU agent" || name == "GPU agent") {
				continue
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				c.try(t, bin, mountedDisk(t, kind, 48, 0), url, spec, rows)
			})
		}
	}
}

// begin starts the process on a disk.
func (c fullDiskProcess) begin(t *testing.T, bin, dir string) *process {
	t.Helper()
	args := append(c.args[1:len(c.args):len(c.args)], c.value+dir)
	p, _ := startProcess(t, c.ready, filepath.Join(bin, c.args[0]), args...)
	return p
}

// try fills the disk under a process that works.
func (c fullDiskProcess) try(t *testing.T, bin, dir, url, spec, rows string) {
	p := c.begin(t, bin, dir)
	if m := regexp.MustCompile(`msg="nats is ready" url=(\S+)`).FindStringSubmatch(p.log.String()); m != nil {
		url = m[1]
	}
	name := fmt.Sprintf("full-%d", time.Now().UnixNano())
	work := func(args ...string) { // it may fail, or wait for ever, as the disk is full
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		go func() {
			select {
			case <-p.done:
				cancel()
			case <-ctx.Done():
			}
		}()
		_ = osexec.CommandContext(ctx, filepath.Join(bin, "exoswarm"), append(args, "--nats", url)...).Run()
	}
	text, err := os.ReadFile(spec)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	own := write(t, filepath.Join(t.TempDir(), "own.yaml"), strings.Replace(string(text), "full", name, 1))
	work("swarm", "create", "-f", own)
	filler := filepath.Join(dir, "filler")
	steps := []int64{5 << 20, 0, 9 << 20, 1 << 20, 64 << 10}
	for _, left := range steps[:testkit.Of(len(steps), 2)] {
		if err := os.Remove(filler); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("os.Remove: %v", err)
		}
		leave(t, filler, left)
		work("submit", "--kind", "nobody", "--spec", strings.Repeat("0", 1000))
		work("swarm", "tick", name)
		work("run", "-f", write(t, filepath.Join(t.TempDir(), "run.yaml"), smallSpec), "--input", rows, "--output",
			filepath.Join(t.TempDir(), "out.ndjson"), "--patience", "2s")
	}
	select {
	case <-p.done:
		if c.ends == "" || !regexp.MustCompile(c.ends).MatchString(p.log.String()) {
			t.Errorf("%q ended on a full disk: %v, want that it goes on or says %q:\n%s", c.args, p.cmd.ProcessState,
				c.ends, p.log)
		}
	default:
		p.end(t, syscall.SIGTERM)
	}
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() || s.ExitStatus() == 2 ||
		strings.Contains(p.log.String(), "goroutine ") {
		t.Errorf("%q died: %v:\n%.3000s", c.args, p.cmd.ProcessState, p.log)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatalf("os.Remove: %v", err)
	}
	c.begin(t, bin, dir).end(t, syscall.SIGTERM)
}

// TestReadOnly: a process with a folder that it cannot write says so, and does not start.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	dir := mountedDisk(t, "tmpfs", 1, syscall.MS_RDONLY)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), smallSpec)
	for _, args := range [][]string{
		{"exoswarm", "nats", "--port", "0", "--data-dir", dir},
		{"exoswarm", "serve", "--nats-port", "0", "--listen", "127.0.0.1:0", "--data-dir", dir},
		{"exoswarm", "detect", "-f", spec, "--data-dir", dir},
		{"exoswarm", "run", "-f", spec, "--input", spec, "--output", "-", "--data-dir", dir},
		{"gpuagent", "--nats", url, "--device", "host", "--data-dir", dir},
		{"cpuagent", "--nats", url, "--data-dir", dir},
	} {
		out, err := osexec.CommandContext(t.Context(), filepath.Join(bin, args[0]), args[1:]...).CombinedOutput()
		var exit *osexec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "read-only file system") ||
			strings.Contains(string(out), "is ready\"") {
			t.Errorf("%q: error %v, want exit code 2 and the reason: %s", args, err, out)
		}
	}
}
