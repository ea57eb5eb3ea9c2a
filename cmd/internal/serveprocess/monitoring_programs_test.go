package serveprocess_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("EXOSWARM_LONG") == "" { // the long tests measure with files on the disk
		testkit.TempInMemory()
	}
	testkit.CheckLeaksParallel(cleaning{m}, 8)
}

// cleaning removes the programs after the tests.
type cleaning struct{ *testing.M }

// Run runs the tests.
func (c cleaning) Run() int {
	defer func() {
		if dir := built.Load(); dir != nil {
			_ = os.RemoveAll(*dir)
		}
	}()
	return c.M.Run()
}

// built is the folder of the programs that build has made; nil before.
var built atomic.Pointer[string]

// build builds the programs that a user deploys, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exoswarm-monitoring-")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	cmd := exec.Command("go", "build", "-tags="+testkit.ReleaseTags, "-ldflags=-s -w", "-o", dir,
		"./cmd/exoswarm", "./cmd/cpuagent", "./cmd/gpuagent")
	cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// programs returns the folder of the programs: EXOSWARM_COMMANDS, or a folder with new builds.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("EXOSWARM_COMMANDS"); dir != "" {
		return dir
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// launch starts a program in a process, as a user does, and waits until its metrics are served. It
// uses the server of the stand unless args have another server.
func (s *stand) launch(name, program string, args ...string) *process {
	s.t.Helper()
	if !slices.Contains(args, "--nats") {
		args = append(args, "--nats", s.nats.URL())
	}
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), filepath.Join(programs(s.t), program),
		append(args, "--metrics", s.address(name), "--log-level", "info")...)
	var log testkit.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var stopped atomic.Bool
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{}), stop: func() {
		if stopped.CompareAndSwap(false, true) {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}}
	go func() {
		defer close(p.ended)
		if err := cmd.Wait(); err != nil || !stopped.Load() {
			s.t.Errorf("%s has ended: %v\n%s", name, err, log.String())
		}
	}()
	s.t.Cleanup(p.end)
	s.served(name, p, &log)
	return p
}

// served waits until the metrics of a process are served.
func (s *stand) served(name string, p *process, log *testkit.Log) {
	s.t.Helper()
	s.eventually("the metrics of "+name, func() bool {
		select {
		case <-p.ended:
			s.t.Fatalf("%s has ended:\n%s", name, log.String())
		default:
		}
		_, err := get(s.t, "http://"+s.targets[name]+"/livez", "")
		return err == nil
	})
}

// cpu returns the processor time of the process so far, to 10 ms.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name of the program is in parentheses. The times are fields 14 and 15 in ticks of 10 ms.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
