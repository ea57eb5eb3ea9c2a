package gpuprocess

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// standInName is the device of the tests of kernels in place of host, which compiles no kernel.
const standInName = "stand-in"

// kernelDevice returns the device of -device, or standInName in place of host.
func kernelDevice() string {
	if *benchDevice == "host" {
		return standInName
	}
	return *benchDevice
}

// openKernelTest opens the devices of a test process for kernels.
func openKernelTest(ctx context.Context, r kernelRequest) (device.Device, error) {
	if r.Device != standInName {
		return openCUDA(ctx, r)
	}
	r.Device = "host"
	d, err := openCUDA(ctx, r)
	if err != nil {
		return d, err
	}
	return standIn{d}, nil
}

// standIn is the host device with kernels whose names say what they do: they are not compiled.
type standIn struct{ device.Device }

type standInKernel struct{ name string }

func (k standInKernel) Name() string                { return k.name }
func (k standInKernel) Signature() []device.Param   { return nil }
func (k standInKernel) Cover(int64) device.Geometry { return device.Geometry{Grid: 1, Block: 1} }
func (d standIn) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return standInStream{s}, err
}

func (d standIn) Compile(name, _ string, _ ...device.Param) (device.Kernel, error) {
	if name == "wrong" {
		return nil, device.ErrInvalidArgument
	}
	return standInKernel{name}, nil
}

type standInStream struct{ device.Stream }

// Launch does what the name of the kernel says with its first argument.
func (s standInStream) Launch(k device.Kernel, _ device.Geometry, args ...device.Arg) error {
	switch k.Name() {
	case "endless":
		select {}
	case "fault":
		return device.ErrSticky
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return args[0].Memory().(device.Buffer).Write(0, []byte{7, 0, 0, 0})
}

// kernelSources are kernels that do on a GPU what their names say.
var kernelSources = map[string]string{
	"seven":   `__global__ void seven(int *x) { x[0] = 7; }`,
	"endless": `__global__ void endless(int *x) { volatile int *v = x; while (v[0] >= 0) { } }`,
	"fault":   `__global__ void fault(int *x) { ((volatile int *)0x10)[0] = x[0]; }`,
	"wrong":   `__global__ void wrong(int *x) { return 1; }`,
}

func kernelSpec(name string, n int) *gpujob.KernelSpec {
	x := gpujob.From(make([]int32, n))
	return &gpujob.KernelSpec{
		Source: kernelSources[name], Entry: name, Grid: []int{1}, Block: []int{1},
		Args: []gpujob.Arg{{Name: "x", Array: &x, Return: true}},
	}
}

func startLauncher(t *testing.T) *kernelLauncher {
	t.Helper()
	l, err := newKernelLauncher("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// seven executes a kernel that stores 7.
func seven(t *testing.T, l *kernelLauncher, n int) {
	t.Helper()
	out, err := l.Run(t.Context(), kernelDevice(), kernelSpec("seven", n))
	if err != nil {
		t.Fatalf("a kernel: %v", err)
	}
	if x := out.Arrays["x"]; len(x.Data) != 4*n || x.Data[0] != 7 {
		t.Fatalf("the kernel returns %d bytes, want %d that begin with 7", len(x.Data), 4*n)
	}
}

// TestKernelRun: a process executes kernels one after the other, also with outputs that are no
// message.
func TestKernelRun(t *testing.T) {
	l := startLauncher(t)
	seven(t, l, 1)
	first := l.idle[kernelDevice()].cmd.Process.Pid
	seven(t, l, 1_000_000)
	if again := l.idle[kernelDevice()].cmd.Process.Pid; again != first {
		t.Errorf("the second kernel ran in process %d, the first one in %d", again, first)
	}
	_, err := l.Run(t.Context(), kernelDevice(), kernelSpec("wrong", 1))
	if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || jobs.Retryable(err) {
		t.Errorf("a source that does not compile: %v, want code invalid", err)
	}
	seven(t, l, 1)
}

// TestKernelEndless: a kernel that never ends is ended with its job, within a second or so, and
// harms neither a concurrent kernel nor a later kernel. The agent's own work on the device
// continues.
func TestKernelEndless(t *testing.T) {
	l := startLauncher(t)
	seven(t, l, 1) // opens the device, so that the times below are only the kernels'
	dev, err := openKernelTest(t.Context(), kernelRequest{Device: kernelDevice()})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cause := errors.New("the time of the job is over")
	ctx, stop := context.WithCancelCause(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		if _, err := l.Run(ctx, kernelDevice(), kernelSpec("endless", 1)); !errors.Is(err, cause) {
			t.Errorf("an endless kernel: %v, want the cause of its end", err)
		}
	})
	<-time.After(3 * time.Second) // the kernel runs for a time; a GPU compiles it first
	seven(t, l, 1000)
	b, err := dev.Alloc(1<<20, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Fill(0, 1<<20, 3), b.Close()); err != nil {
		t.Errorf("the device of the agent beside an endless kernel: %v", err)
	}
	began := time.Now()
	stop(cause)
	wait.Wait()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the endless kernel was ended after %v", took)
	}
	seven(t, l, 1)
}

// TestKernelFault: a kernel that faults is an error of its job, and the next kernel runs.
func TestKernelFault(t *testing.T) {
	l := startLauncher(t)
	for _, name := range []string{"fault", "crash"} {
		if name == "crash" && kernelDevice() != "host" {
			continue
		}
		_, err := l.Run(t.Context(), kernelDevice(), kernelSpec(name, 1))
		if err == nil || jobs.AsError(err).Code != jobs.CodeDevice || !jobs.Retryable(err) {
			t.Errorf("%s: %v, want code device, to be tried again", name, err)
		}
		if errors.Is(err, device.ErrSticky) {
			t.Errorf("%s: %v counts against the device of the agent", name, err)
		}
		seven(t, l, 1)
	}
}

// TestKernelClose: no process is left, and no kernel starts any more.
func TestKernelClose(t *testing.T) {
	l := startLauncher(t)
	seven(t, l, 1)
	pid := l.idle[kernelDevice()].cmd.Process.Pid
	l.Close()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Close: %v", pid, err)
	}
	if _, err := l.Run(t.Context(), kernelDevice(), kernelSpec("seven", 1)); !errors.Is(err, errClosed) {
		t.Errorf("a kernel after Close: %v", err)
	}
	l.Close()
}

// TestKernelMark: a process for kernels starts no other one.
func TestKernelMark(t *testing.T) {
	t.Setenv(kernelMark, "1")
	if _, err := newKernelLauncher("", slog.New(slog.DiscardHandler)); !errors.Is(err, errNoMain) {
		t.Errorf("a launcher in a process for kernels: %v", err)
	}
}

// TestKernelEnvironment: processes get no secrets of the agent.
func TestKernelEnvironment(t *testing.T) {
	kept := kernelEnvironment([]string{"PATH=/bin", "EXOSWARM_PASSWORD=x", "NATS_CREDS=y", "CUDA_VISIBLE_DEVICES=1"})
	if got := strings.Join(kept, " "); got != "PATH=/bin CUDA_VISIBLE_DEVICES=1" {
		t.Errorf("the environment is %q", got)
	}
}
