package gpuprocess

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// kernelIdle is how long a process waits for another kernel. To open a device takes most of the
// time of a small job; an idle process holds the memory of its context.
const kernelIdle = 10 * time.Second

var (
	errClosed = errors.New("kernels: the launcher is closed")
	errNoMain = errors.New("kernels: this is a process for kernels, but the program does not call KernelMain")
)

// kernelMark is set in the environment of the processes. A program whose main function does not
// call KernelMain would start itself again and again.
const kernelMark = "EXOSWARM_KERNEL_PROCESS"

// kernelLauncher executes kernels in child processes: at most one kernel at a time in each. Its
// methods may be called from several goroutines.
//
// A kernel is code of its submitter. A launch on a GPU cannot be stopped, a kernel that faults
// takes the GPU from its process, and while a kernel runs the driver may hold up other calls of its
// process. So an agent executes such kernels in a child process, which has its own context on the
// device, and ends the process with the job. Requests and replies go through pipes.
type kernelLauncher struct {
	program  string
	cacheDir string
	log      *slog.Logger

	mu     sync.Mutex
	idle   map[string]*kernelChild // by device, at most one of each
	closed bool
}

// kernelChild is a process of one device. One goroutine uses it at a time.
type kernelChild struct {
	device  string
	cmd     *exec.Cmd
	in      io.WriteCloser
	request *gob.Encoder
	reply   *gob.Decoder
	timer   *time.Timer // ends the process while it is idle
}

// newKernelLauncher returns a launcher whose processes are this program with kernelArgument.
// cacheDir is the directory of compiled kernels, empty for none. The caller calls Close.
func newKernelLauncher(cacheDir string, log *slog.Logger) (*kernelLauncher, error) {
	if os.Getenv(kernelMark) != "" {
		return nil, errNoMain
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program for kernels of jobs: %w", err)
	}
	return &kernelLauncher{program: program, cacheDir: cacheDir, log: log, idle: map[string]*kernelChild{}}, nil
}

// Run executes a kernel on a device, with all arrays of the specification inline. When ctx ends, it
// ends the process and returns the cause; the memory of the kernel is free then. Errors have the
// class of the job; a fault of the kernel is jobs.CodeDevice, to be tried again, and harms nothing
// outside of its process.
func (l *kernelLauncher) Run(ctx context.Context, device string, s *gpujob.KernelSpec) (*gpujob.KernelOutput, error) {
	c, err := l.take(device)
	if err != nil {
		return nil, err
	}
	var answer kernelReply
	done := make(chan error, 1)
	go func() {
		err := c.request.Encode(kernelRequest{Device: device, CacheDir: l.cacheDir, Spec: s})
		if err == nil {
			err = c.reply.Decode(&answer)
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		state := c.stop()
		<-done
		l.log.Info("a kernel was ended with its process", "device", device, "entry", s.Entry, "state", state)
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, jobs.Retry(jobs.Errorf(jobs.CodeDevice, "kernel %s: its process ended: %s", s.Entry, c.stop()))
	}
	if answer.Code == jobs.CodeDevice {
		c.stop()
	} else {
		l.put(c)
	}
	if answer.Code == "" {
		return answer.Output, nil
	}
	err = jobs.Errorf(answer.Code, "%s", answer.Message)
	if answer.Retry {
		err = jobs.Retry(err)
	}
	return nil, err
}

// Close ends the idle processes. No Run may start after it; a running Run ends its process itself.
// A second call does nothing.
func (l *kernelLauncher) Close() {
	l.mu.Lock()
	l.closed = true
	all := l.idle
	l.idle = map[string]*kernelChild{}
	l.mu.Unlock()
	for _, c := range all {
		if c.timer.Stop() {
			c.stop()
		}
	}
}

// take returns a process of a device, an idle one if there is one.
func (l *kernelLauncher) take(device string) (*kernelChild, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if c := l.idle[device]; c != nil {
		delete(l.idle, device)
		if c.timer.Stop() {
			return c, nil
		}
	}
	return l.start(device)
}

// start starts a process. It gets none of the secrets in the environment of the agent.
func (l *kernelLauncher) start(device string) (*kernelChild, error) {
	cmd := exec.Command(l.program, kernelArgument)
	cmd.Env = append(kernelEnvironment(os.Environ()), kernelMark+"=1")
	cmd.Stderr = os.Stderr
	c := &kernelChild{device: device, cmd: cmd}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process for kernels: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(jobs.Retry(fmt.Errorf("start a process for kernels: %w", err)), in.Close())
	}
	c.in, c.request, c.reply = in, gob.NewEncoder(in), gob.NewDecoder(out)
	return c, nil
}

// put makes a process idle, or ends it if there is one already.
func (l *kernelLauncher) put(c *kernelChild) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.idle[c.device] != nil {
		go c.stop()
		return
	}
	l.idle[c.device] = c
	c.timer = time.AfterFunc(kernelIdle, func() {
		l.mu.Lock()
		if l.idle[c.device] == c {
			delete(l.idle, c.device)
		}
		l.mu.Unlock()
		c.stop()
	})
}

// stop ends the process, waits for its end, and says how it ended.
func (c *kernelChild) stop() string {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	if err := c.cmd.Wait(); err != nil {
		return err.Error()
	}
	return c.cmd.ProcessState.String()
}

// kernelEnvironment returns the variables that the driver, the compiler and the tests need.
func kernelEnvironment(all []string) (kept []string) {
	for _, v := range all {
		for _, prefix := range []string{
			"PATH=", "HOME=", "TMPDIR=", "LD_LIBRARY_PATH=", "CUDA_", "NVIDIA_", "EXOSWARM_LIB", "EXOSWARM_TEST_",
			"GOCOVERDIR=",
		} {
			if strings.HasPrefix(v, prefix) {
				kept = append(kept, v)
				break
			}
		}
	}
	return kept
}
