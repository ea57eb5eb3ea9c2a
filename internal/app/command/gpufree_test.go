package command_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// build makes a program of this module.
func build(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return program
}

// TestGPUFree checks the real programs: cpuagent holds no GPU code, with symbols or without, and
// gpuagent does.
func TestGPUFree(t *testing.T) {
	testkit.OnlyLong(t) // it builds three programs
	const module = "github.com/exoswarm/exoswarm/cmd/"
	for _, flags := range [][]string{nil, {"-ldflags=-s -w"}} {
		if err := command.GPUFree(build(t, module+"cpuagent", flags...), "/proc/self"); err != nil {
			t.Errorf("cpuagent built with %q: %v", flags, err)
		}
	}
	err := command.GPUFree(build(t, module+"gpuagent", "-ldflags=-s -w"), "/proc/self")
	if !errors.Is(err, command.ErrGPUCode) || !strings.Contains(err.Error(), "exoswarm/cuda") {
		t.Errorf("gpuagent: %v", err)
	}
}

// TestGPUFreeProcess checks what a process has open, and files that are no programs.
func TestGPUFreeProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc := func(maps, open string) string {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o600),
			os.Mkdir(filepath.Join(dir, "fd"), 0o700),
			os.Symlink(open, filepath.Join(dir, "fd", "3"))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const libc = "7f00-7f10 r-xp 00000000 08:01 42   /usr/lib/libc.so.6\n"
	for name, c := range map[string]struct{ proc, found string }{
		"nothing":   {proc: proc(libc, "/dev/null")},
		"no folder": {proc: filepath.Join(t.TempDir(), "absent")},
		"library": {proc: proc(libc+"7f20-7f30 r-xp 00000000 08:01 43   /usr/lib/libcuda.so.580.159\n",
			"/dev/null"), found: "libcuda.so.580.159"},
		"device":       {proc: proc(libc, "/dev/nvidia0"), found: "/dev/nvidia0"},
		"similar name": {proc: proc("7f20-7f30 r-xp 00000000 08:01 43   /usr/lib/libcudasomething.so\n", "/dev/nvme0")},
	} {
		err := command.GPUFree(self, c.proc)
		if (c.found == "") != (err == nil) || err != nil &&
			(!errors.Is(err, command.ErrGPUCode) || !strings.Contains(err.Error(), c.found)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := command.GPUFree(text, "/proc/self"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a text: %v", err)
	}
	if err := command.GPUFree(text+"2", "/proc/self"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
