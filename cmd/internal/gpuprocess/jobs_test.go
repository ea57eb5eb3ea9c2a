package gpuprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// submit submits a job of pool gpu.
func (r *rig) submit(ctx context.Context, t *testing.T, id string, s gpujob.Spec) {
	t.Helper()
	j, err := gpujob.NewJob(id, s)
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	if err := r.conn.Queue.Submit(ctx, j); err != nil {
		t.Fatalf("submit %s: %v", id, err)
	}
}

// TestJobs submits jobs of pool gpu, lets the process of a GPU agent execute them, and gets the
// results. It runs on the device of the flag -device.
func TestJobs(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	submit := func(id string, s gpujob.Spec) { r.submit(ctx, t, id, s) }
	result := func(id string, out any) jobs.Result {
		t.Helper()
		got, err := r.conn.Results.Result(ctx, id)
		if err != nil {
			t.Fatalf("result of %s: %v", id, err)
		}
		if got.Error == nil {
			if err := json.Unmarshal(got.Output, out); err != nil {
				t.Fatalf("output of %s: %v", id, err)
			}
		}
		return got
	}
	// A job that nobody takes yet waits.
	submit("early", &gpujob.ReduceSpec{Op: "sum", In: gpujob.From([]float32{1, 2, 3})})
	agent := r.spawn(t, "--device", *benchDevice, "--allow-kernels", "--snapshots", t.TempDir())
	var sum gpujob.ReduceOutput
	if got := result("early", &sum); got.Error != nil || sum.Text != "6" || sum.Device != *benchDevice ||
		got.Worker != "agent" {
		t.Errorf("the sum is %+v of %+v", sum, got)
	}
	served, err := r.conn.Registry.Served(ctx, jobs.PoolGPU)
	if err != nil || !slices.Equal(gpujob.Kinds(), sortedKeys(served)) {
		t.Errorf("the registry shows the kinds %v, error %v; want %v", served, err, gpujob.Kinds())
	}
	if all, err := r.conn.Registry.Agents(ctx); err != nil || len(all) != 1 || all[0].JobSlots != 3 ||
		all[0].JobsRunning > 2 {
		t.Errorf("the registry shows %+v, error %v; want one agent with 2 slots for jobs and 1 for trainings", all, err)
	}
	// A specification and an output that are objects.
	large := make([]float32, 1<<20)
	for i := range large {
		large[i] = float32(len(large) - i)
	}
	submit("large", &gpujob.SortSpec{In: gpujob.From(large)})
	var sorted gpujob.SortOutput
	if got := result("large", &sorted); got.Error != nil || sorted.Sorted.Object == "" {
		t.Errorf("sorted %+v, error %v; want an object", sorted.Sorted.Shape, got.Error)
	} else if o, err := r.conn.Objects.Object(ctx, sorted.Sorted.Object, jobs.Owner{}); err != nil {
		t.Errorf("object %s: %v", sorted.Sorted.Object, err)
	} else {
		_ = o.Close()
	}
	x := gpujob.From([]float32{1, 2, 3})
	submit("kernel", &gpujob.KernelSpec{
		Source: "__global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }",
		Entry:  "twice", Grid: []int{1}, Block: []int{3}, Args: []gpujob.Arg{
			{Array: &x}, {Name: "y", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{3}}},
		},
	})
	var launched gpujob.KernelOutput
	got := result("kernel", &launched)
	y := launched.Arrays["y"]
	switch {
	case *benchDevice == "host":
		if got.Error == nil || got.Error.Code != jobs.CodeInvalid ||
			!strings.Contains(got.Error.Message, "--device cuda") {
			t.Errorf("a kernel on the host device: %v; want code invalid and the cure", got.Error)
		}
	case got.Error != nil || !slices.Equal(gpujob.Decode[float32](y.Data), []float32{2, 4, 6}):
		t.Errorf("the kernel wrote %+v, error %v; want 2, 4, 6", y, got.Error)
	}
	agent.end(syscall.SIGTERM)
	if text := r.String(); strings.Contains(text, "panic") || strings.Contains(text, "releasing the device") {
		t.Errorf("the agent logged:\n%s", text)
	}
}

// TestFaultyJob: a kernel that faults takes the GPU from its process. A supervisor starts the agent
// again; the job fails with code device after its two attempts, and all other jobs end well. It
// needs a GPU.
func TestFaultyJob(t *testing.T) {
	if *benchDevice == "host" {
		t.Skip("needs -args -device cuda:0")
	}
	r := newRigAt(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	submit := func(id string, s gpujob.Spec) { r.submit(ctx, t, id, s) }
	x := gpujob.From([]float32{1, 2, 3})
	const others = 40
	for i := range others {
		if i == others/2 {
			submit("bad", &gpujob.KernelSpec{
				Source: "__global__ void bad(float *x) { ((volatile float *)0x10)[0] = x[0]; }",
				Entry:  "bad", Grid: []int{1}, Block: []int{1}, Args: []gpujob.Arg{{Array: &x}},
			})
		}
		submit(fmt.Sprint("sum", i), &gpujob.ReduceSpec{Op: "sum", In: x})
	}
	ended, stop := make(chan int, 1), make(chan struct{})
	go func() {
		starts := 0
		defer func() { ended <- starts }()
		for {
			agent := r.spawn(t, "--device", *benchDevice, "--allow-kernels")
			starts++
			select {
			case err := <-agent.ends:
				agent.ends <- err
			case <-stop:
				agent.end(syscall.SIGTERM)
				return
			}
		}
	}()
	for i := range others {
		if got, err := r.conn.Results.Result(ctx, fmt.Sprint("sum", i)); err != nil || got.Error != nil {
			t.Errorf("sum %d: %v, %v", i, got.Error, err)
		}
	}
	if got, err := r.conn.Results.Result(ctx, "bad"); err != nil || got.Error == nil ||
		got.Error.Code != jobs.CodeDevice {
		t.Errorf("the job that faults: %+v, %v; want code device", got.Error, err)
	}
	close(stop)
	t.Logf("the agent was started %d times", <-ended)
}

// TestNoJobs: with --gpu-jobs 0 an agent serves shards alone, without --allow-kernels it does not
// serve kernels, and without --snapshots, or with --train-jobs 0, it trains no models.
func TestNoJobs(t *testing.T) {
	t.Parallel()
	r, place := newRigAt(t, 0), t.TempDir()
	without := func(kinds ...string) []string {
		return slices.DeleteFunc(gpujob.Kinds(), func(k string) bool { return slices.Contains(kinds, k) })
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--gpu-jobs", "0"}, nil},
		{[]string{"--snapshots", place}, without(gpujob.KindKernel)},
		{nil, without(gpujob.KindKernel, gpujob.KindTrain)},
		{
			[]string{"--snapshots", place, "--train-jobs", "0"},
			without(gpujob.KindKernel, gpujob.KindTrain, gpujob.KindTrainProgram),
		},
	} {
		agent := r.spawn(t, c.args...)
		served, err := r.conn.Registry.Served(t.Context(), jobs.PoolGPU)
		if err != nil || !slices.Equal(sortedKeys(served), c.want) {
			t.Errorf("%q: the registry shows the kinds %v, error %v; want %v", c.args, served, err, c.want)
		}
		agent.end(syscall.SIGTERM)
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
