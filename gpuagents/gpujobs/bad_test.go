package gpujobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// badKernels are kernels that end badly, by the name of their test: the code of their job and a
// part of its message.
var badKernels = map[string]struct {
	source string
	code   jobs.Code
	text   string
	retry  bool
}{
	"fault": {
		`__global__ void bad(float *x) { ((volatile float *)0x10)[threadIdx.x] = x[0]; }`,
		jobs.CodeDevice, "bad", true,
	},
	"misaligned": {
		`__global__ void bad(float *x) { *(volatile double *)((char *)x + 1) = 1; }`, jobs.CodeDevice, "bad", true,
	},
	"trap": {`__global__ void bad(float *x) { asm volatile("trap;"); }`, jobs.CodeDevice, "bad", true},
	"endless": {
		`__global__ void bad(float *x) { volatile float *v = x; while (v[0] >= 0) { } }`, jobs.CodeDeadline,
		"--gpu-job-timeout", false,
	},
	"watchdog": {
		`__global__ void bad(float *x) { volatile float *v = x; while (v[0] >= 0) { } }`, jobs.CodeDevice, "bad", false,
	},
}

// badKernel is the variable of the environment that names the kernel of a child process.
const badKernel = "EXOSWARM_TEST_BAD_KERNEL"

// TestBadKernels: kernels that fault or never end fail with their class, also without a process of
// their own, which an agent has for them (cmd/internal/gpuprocess). Each test is a process, because
// a fault takes the GPU from its process. It needs a GPU.
func TestBadKernels(t *testing.T) {
	if *deviceName == "host" {
		t.Skip("needs -args -device cuda:0")
	}
	if name := os.Getenv(badKernel); name != "" {
		runBadKernel(t, name)
		return
	}
	for name := range badKernels {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBadKernels$", "-test.v", "-device", *deviceName)
			cmd.Env = append(os.Environ(), badKernel+"="+name)
			out, err := cmd.CombinedOutput()
			if !bytes.Contains(out, []byte("the kernel ended as it should\n")) {
				t.Errorf("%v:\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// runBadKernel executes a job with a kernel that ends badly, and ends the process.
func runBadKernel(t *testing.T, name string) {
	c := badKernels[name]
	timeout, watchdog := 2*time.Second, time.Minute
	if name == "watchdog" {
		timeout, watchdog = time.Minute, 2*time.Second
	}
	dev, err := cuda.Open(t.Context(), *deviceName, cuda.Options{Watchdog: watchdog})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	h, _ := handlersOn(t, dev, gpujobs.Options{Timeout: timeout})
	x := gpujob.From([]float32{1})
	j, err := gpujob.NewJob("bad", &gpujob.KernelSpec{
		Source: c.source, Entry: "bad", Grid: []int{1}, Block: []int{1}, Args: []gpujob.Arg{{Array: &x}},
	})
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	began := time.Now()
	_, err = h.Jobs()[gpujob.KindKernel](t.Context(), j, func(any) {})
	fmt.Printf("after %v: %v\n", time.Since(began), err)
	ok := err != nil && jobs.AsError(err).Code == c.code && strings.Contains(err.Error(), c.text) &&
		jobs.Retryable(err) == c.retry && time.Since(began) < 2*time.Minute
	if ok {
		fmt.Println("the kernel ended as it should")
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // a normal exit waits for the kernel
	select {}
}

const spin = `__global__ void spin(float *x, unsigned long long ns) {
	unsigned long long start, now;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
	x[0] = 7;
}`

// spinTime is how long the launch of TestCancelLaunch runs.
const spinTime = 3 * time.Second

// TestCancelLaunch: a job that is cancelled during its work returns before its launch has ended,
// its memory is released after the work, and other jobs continue. On the host device the work is a
// sort, which ends between two passes.
func TestCancelLaunch(t *testing.T) {
	r := start(t, gpujobs.Options{AllowKernels: true})
	x := gpujob.From([]float32{1})
	var s gpujob.Spec = &gpujob.KernelSpec{
		Source: spin, Entry: "spin", Grid: []int{1}, Block: []int{1},
		Args: []gpujob.Arg{{Array: &x}, {Type: gpujob.U64, Value: json.Number(fmt.Sprint(spinTime.Nanoseconds()))}},
	}
	if *deviceName == "host" {
		values := make([]float64, 1_500_000)
		for i := range values {
			values[i] = float64(i*7919%1_000_003) / 7
		}
		s = &gpujob.SortSpec{In: gpujob.From(values)}
	}
	j, err := gpujob.NewJob("j", s)
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	const cancelAfter = 20 * time.Millisecond
	var cancelled time.Time
	handler := func() (any, error) {
		if h := r.Jobs()[j.Kind]; h != nil {
			return h(ctx, j, func(v any) {
				if v == (gpujobs.Stage{Stage: "computing"}) {
					time.AfterFunc(cancelAfter, func() { cancelled = time.Now(); cancel(jobs.ErrCancelled) })
				}
			})
		}
		outs, err := r.Batches()[j.Kind](ctx, []jobs.Job{j}, func(_ int, v any) {
			if v == (gpujobs.Stage{Stage: "computing"}) {
				time.AfterFunc(cancelAfter, func() { cancelled = time.Now(); cancel(jobs.ErrCancelled) })
			}
		})
		return outs[0].Output, errors.Join(err, outs[0].Err)
	}
	out, err := handler()
	if !errors.Is(err, jobs.ErrCancelled) {
		t.Fatalf("the job ended with %T, %v; want that it was cancelled", out, err)
	}
	if late := time.Since(cancelled); *deviceName != "host" && late > spinTime {
		t.Errorf("the job returned %v after it was cancelled: it has waited for its launch", late)
	}
	if sum := do[gpujob.ReduceOutput](t, r, &gpujob.ReduceSpec{Op: "sum", In: x}); sum.Text != "1" {
		t.Errorf("the sum of 1 is %s", sum.Text)
	}
}

// handlersOn returns handlers that run kernels on a device, and the number of slots that are taken.
func handlersOn(t *testing.T, dev device.Device, o gpujobs.Options) (*gpujobs.Handlers, *sync.WaitGroup) {
	t.Helper()
	var open sync.WaitGroup
	o.AllowKernels = true
	o.Slot = func(context.Context, int64) (gpujobs.Slot, error) {
		open.Add(1)
		return slot{dev, &open}, nil
	}
	h, err := gpujobs.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return h, &open
}

// TestSmallDevice: a job that needs 10 GB on a device with little memory fails with code device,
// and the next job finds all of the memory.
func TestSmallDevice(t *testing.T) {
	dev, err := cuda.Open(t.Context(), *deviceName, cuda.Options{MemoryLimit: 16 << 20})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	h, open := handlersOn(t, dev, gpujobs.Options{Memory: 1 << 40})
	t.Cleanup(func() {
		h.Close()
		open.Wait()
		if err := dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	r := rig{Handlers: h}
	long := gpujob.From(make([]float32, 50_000), 50_000, 1)
	wide := gpujob.From(make([]float32, 50_000), 1, 50_000)
	specs := []gpujob.Spec{
		&gpujob.GemmSpec{A: long, B: wide},
		&gpujob.SortSpec{In: gpujob.From(make([]float32, 2_500_000))},
	}
	if *deviceName != "host" {
		specs = append(specs, &gpujob.KernelSpec{
			Source: "__global__ void k(float *x) {}", Entry: "k", Grid: []int{1}, Block: []int{1},
			Args: []gpujob.Arg{{Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{2_500_000_000}}}},
		})
	}
	for _, s := range specs {
		j, err := gpujob.NewJob("j", s)
		if err != nil {
			t.Fatalf("NewJob: %v", err)
		}
		if out, err := r.try(t.Context(), j); err == nil || jobs.AsError(err).Code != jobs.CodeDevice ||
			!jobs.Retryable(err) {
			t.Errorf("%s: %T, %v; want code device, to be tried again", s.Kind(), out, err)
		}
		if sum := do[gpujob.ReduceOutput](t, r, &gpujob.ReduceSpec{
			Op: "sum", In: gpujob.From(make([]float32, 2_500_000)),
		}); sum.Text != "0" {
			t.Errorf("a sum after %s: %s", s.Kind(), sum.Text)
		}
	}
}

// TestBadSource: sources that no device compiles are refused before they reach one.
func TestBadSource(t *testing.T) {
	r := start(t, gpujobs.Options{AllowKernels: true})
	for want, change := range map[string]func(s *gpujob.KernelSpec){
		"at most 1048576":           func(s *gpujob.KernelSpec) { s.Source += strings.Repeat("//\n", 10<<20/3) },
		"#include":                  func(s *gpujob.KernelSpec) { s.Source = "  #  include <stdio.h>\n" + s.Source },
		"__global__ void missing":   func(s *gpujob.KernelSpec) { s.Entry = "missing" },
		"bytes for 10 elements":     func(s *gpujob.KernelSpec) { s.Args[0].Array.Data = s.Args[0].Array.Data[:39] },
		"10 elements are missing":   func(s *gpujob.KernelSpec) { s.Args[0].Array.Data = nil },
		"a template has no symbol":  func(s *gpujob.KernelSpec) { s.Source = "template <class T> " + s.Source },
		"arrays of 40000000040 byt": func(s *gpujob.KernelSpec) { s.Args[1].Out.Shape[0] = 10_000_000_000 },
	} {
		s := scaled(10)
		change(s)
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.try(t.Context(), jobs.Job{ID: "j", Kind: "kernel", Spec: data})
		if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300v; want code invalid and %q", err, want)
		}
	}
	if *deviceName == "host" {
		return
	}
	for want, source := range map[string]string{
		"spec.source": `__global__ void scale(const float *x, float *y, float by, unsigned long long n) { return 1; }`,
		"parameter":   `__global__ void scale(const float *x, float *y, double by, unsigned long long n) {}`,
	} {
		s := scaled(10)
		s.Source = source
		refused(t, r, s, jobs.CodeInvalid, want)
	}
	s := scaled(10)
	s.Block = []int{2048}
	refused(t, r, s, jobs.CodeInvalid, "threads")
}
