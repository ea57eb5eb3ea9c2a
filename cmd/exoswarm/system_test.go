package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	commandsDir = flag.String("commands", "", "folder with exoswarm, gpuagent and cpuagent, which tests of "+
		"processes then do not build")
	commandsRace = flag.Bool("commands.race", false, "build the commands with the race detector; a report of it "+
		"fails the test")
)

// built returns the folder of the commands, in which they are linked once a test run: linking them
// takes ten seconds and more of two cores.
var built = sync.OnceValues(func() (string, error) {
	if *commandsDir != "" {
		return filepath.Abs(*commandsDir)
	}
	dir, err := os.MkdirTemp("", "exoswarm-commands-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args, cgo := []string{"build", "-tags=" + testkit.ReleaseTags, "-ldflags=-s -w", "-o", dir}, "CGO_ENABLED=0"
	if *commandsRace {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := osexec.CommandContext(ctx, "go", append(args, "../exoswarm", "../gpuagent", "../cpuagent")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

var wantsBuilt atomic.Bool // somebody has asked for them

// binaries is the folder of the real commands, which nobody writes to.
func binaries(t *testing.T) string {
	t.Helper()
	wantsBuilt.Store(true)
	dir, err := built()
	if err != nil {
		t.Fatalf("built: %v", err)
	}
	return dir
}

// tidied runs the tests and removes the commands.
type tidied struct{ m *testing.M }

func (t tidied) Run() int {
	code := t.m.Run()
	if wantsBuilt.Load() && *commandsDir == "" {
		if dir, _ := built(); dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	return code
}

// process is a command of the cluster under test.
type process struct {
	cmd  *osexec.Cmd
	done chan struct{}
	log  *transcript // complete when done is closed
	out  *transcript // its standard output, in pieces
}

// transcript is the log of a process, line by line.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *transcript) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *transcript) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startProcess starts a command and waits until a line of its log matches ready; it returns the
// match's first group.
func startProcess(t *testing.T, ready string, name string, args ...string) (*process, string) {
	t.Helper()
	p := &process{cmd: osexec.Command(name, args...), done: make(chan struct{}), log: &transcript{}}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatalf("p.cmd.StderrPipe: %v", err)
	}
	p.out = &transcript{}
	p.cmd.Stdout = p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("p.cmd.Start: %v", err)
	}
	re := regexp.MustCompile(ready)
	found := make(chan string, 1)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.log.add(lines.Text())
			if m := re.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case found <- m[len(m)-1]:
				default:
				}
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() { p.end(t, syscall.SIGKILL) })
	select {
	case m := <-found:
		return p, m
	case <-p.done:
		t.Fatalf("%s ended:\n%s", name, p.log)
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s is not ready", name)
	}
	return nil, ""
}

// end signals the process and waits until it has ended; on one that has ended it does nothing.
func (p *process) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(2 * time.Minute):
		_ = p.cmd.Process.Kill()
		t.Errorf("%s did not end by %v", p.cmd.Path, s)
	}
	if log := p.log.String(); strings.Contains(log, "WARNING: DATA RACE") {
		t.Errorf("%s: the race detector reports:\n%s", p.cmd.Path, log)
	}
}

// letPass lets a fault last, or the random moment of a fault come: time itself is what the tests
// that call it are about. Waits for a condition are testkit.Until.
func letPass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// processes are a NATS server, a GPU agent and a CPU agent as processes of their own.
type processes struct {
	bin, url       string
	nats, gpu, cpu *process
	natsDir        string
}

func (c *processes) startGPU(t *testing.T) {
	c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
		t.TempDir(), "--device", "host")
}

func (c *processes) startCPU(t *testing.T) {
	c.cpu, _ = startProcess(t, "cpuagent is ready", filepath.Join(c.bin, "cpuagent"), "--nats", c.url)
}

// swarm runs a command of exoswarm swarm, and returns its standard output.
func (c *processes) swarm(t *testing.T, args ...string) string {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), filepath.Join(c.bin, "exoswarm"),
		append([]string{"swarm"}, append(args, "--nats", c.url, "--timeout", "5m")...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("exoswarm swarm %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

func startCluster(t *testing.T, bin string) *processes {
	t.Helper()
	c := &processes{bin: bin, natsDir: t.TempDir()}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", c.natsDir)
	c.startGPU(t)
	c.startCPU(t)
	return c
}

// TestCluster: the same job on a cluster of real processes gives the bytes of the run in one
// process, undisturbed and with each of the processes killed in the middle.
func TestCluster(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: test\nagents_per_group: 64\n")
	for i, rows := range []int{30_000, 20_000, 9_000, 40_000} {
		write(t, filepath.Join(dir, "in", string(rune('a'+i))+".csv"), series(uint64(i), rows))
	}
	// begun is called when the run has its first decisions.
	run := func(t *testing.T, ctx context.Context, out string, begun func(), args ...string) error {
		t.Helper()
		args = append([]string{
			"run", "-f", spec, "--input", filepath.Join(dir, "in"), "--output", out, "--batch-rows",
			"1024", "--progress", "json",
		}, args...)
		cmd := osexec.CommandContext(ctx, filepath.Join(bin, "exoswarm"), args...)
		said := &watcher{want: `"decisions":[1-9]`, found: begun}
		cmd.Stdout, cmd.Stderr = said, said
		err := cmd.Run()
		if err != nil {
			t.Logf("exoswarm run: %s", said.text.String())
		}
		return err
	}
	want := filepath.Join(dir, "embedded.ndjson")
	if err := run(t, t.Context(), want, func() {}); err != nil {
		t.Fatalf("run: %v", err)
	}
	expected, err := os.ReadFile(want)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	if n := bytes.Count(expected, []byte("\n")); n != 99_000 {
		t.Fatalf("%d lines", n)
	}
	for name, disturb := range map[string]func(t *testing.T, c *processes){
		"undisturbed": nil,
		"gpuagent killed": func(t *testing.T, c *processes) {
			c.gpu.end(t, syscall.SIGKILL)
			c.startGPU(t)
		},
		"gpuagent drained": func(t *testing.T, c *processes) {
			c.gpu.end(t, syscall.SIGTERM)
			c.startGPU(t)
		},
		"cpuagent killed": func(t *testing.T, c *processes) {
			c.cpu.end(t, syscall.SIGKILL)
			c.startCPU(t)
		},
		"cpuagent drained": func(t *testing.T, c *processes) {
			c.cpu.end(t, syscall.SIGTERM)
			c.startCPU(t)
		},
		"agents drained by an operator": func(t *testing.T, c *processes) {
			code, list, stderr := exec(t.Context(), t, "agent", "list", "--nats", c.url, "-o", "jsonl")
			if code != 0 {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			names := regexp.MustCompile(`"name":"([^"]+)"`).FindAllStringSubmatch(list, -1)
			if len(names) != 2 {
				t.Fatalf("not two agents:\n%s", list)
			}
			for _, n := range names {
				if code, _, stderr := exec(t.Context(), t, "agent", "drain", n[1], "--nats", c.url); code != 0 {
					t.Fatalf("exit %d: %s", code, stderr)
				}
			}
			for _, p := range []*process{c.cpu, c.gpu} {
				p.end(t, syscall.Signal(0)) // it ends by itself
				if code := p.cmd.ProcessState.ExitCode(); code != 0 {
					t.Errorf("%s: exit code %d\n%s", p.cmd.Path, code, p.log)
				}
			}
			c.startGPU(t)
			c.startCPU(t)
		},
		"nats killed": func(t *testing.T, c *processes) {
			c.nats.end(t, syscall.SIGKILL)
			port := c.url[strings.LastIndex(c.url, ":")+1:]
			c.nats, _ = startProcess(t, "nats is ready", filepath.Join(bin, "exoswarm"), "nats", "--port", port,
				"--data-dir", c.natsDir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, bin)
			out := filepath.Join(t.TempDir(), "cluster.ndjson")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			ended, begun := make(chan error, 1), make(chan struct{})
			go func() { ended <- run(t, ctx, out, sync.OnceFunc(func() { close(begun) }), "--nats", c.url) }()
			if disturb != nil {
				select {
				case err := <-ended:
					t.Fatalf("the run was over before the disturbance: %v", err)
				case <-begun:
				}
				disturb(t, c)
			}
			if err := <-ended; err != nil {
				t.Fatalf("the disturbed run: %v", err)
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatalf("os.ReadFile: %v", err)
			}
			if !bytes.Equal(got, expected) {
				t.Error("the decisions differ from the run in one process")
			}
			for _, p := range []*process{c.cpu, c.gpu, c.nats} {
				p.end(t, syscall.SIGTERM)
				if code := p.cmd.ProcessState.ExitCode(); code != 0 {
					t.Errorf("%s: exit code %d\n%s", p.cmd.Path, code, p.log)
				}
			}
		})
	}
}

// TestFullDisk: an output on a disk that runs full is one sentence and exit code 1, and leaves no
// half of a file.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := write(t, filepath.Join(dir, "a.csv"), series(1, 100_000))
	small := filepath.Join(dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v", err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=13m"); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
			t.Skip("mounting a small disk needs root")
		}
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Errorf("syscall.Unmount: %v", err)
		}
	}()
	code, stdout, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", in, "--output",
		filepath.Join(small, "d.ndjson"), "--progress", "none")
	if code != 1 || !strings.Contains(stderr, "no space left on the disk") {
		t.Errorf("output: exit %d: %s%s", code, stdout, stderr)
	}
	if left, err := os.ReadDir(small); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	start := time.Now()
	code, stdout, stderr = exec(t.Context(), t, "run", "-f", spec, "--input", in, "--output",
		filepath.Join(dir, "d.ndjson"), "--data-dir", small, "--progress", "none")
	// Streams and spool share the disk, and either may come to its end first.
	if code != 1 || !strings.Contains(stderr, "no space left on the disk of the streams") &&
		!strings.Contains(stderr, "write the spool of decisions: no space left on the disk") {
		t.Errorf("streams: exit %d: %s%s", code, stdout, stderr)
	}
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("a full disk was noticed after %v", took)
	}
}
