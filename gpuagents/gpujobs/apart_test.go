package gpujobs_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// gpu is the host device with the properties of a GPU.
type gpu struct{ device.Device }

// Properties implements device.Device.
func (g gpu) Properties() device.Properties {
	p := g.Device.Properties()
	p.Name, p.ComputeMajor = "cuda:7", 9
	return p
}

// TestApart: a kernel for a GPU is passed to the process of kernels with all its arrays, its
// outputs are stored as usual, and the slot is held meanwhile.
func TestApart(t *testing.T) {
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{Poison: true})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	defer dev.Close()
	var open sync.WaitGroup
	held := 0
	large := bytes.Repeat([]byte{1, 2, 3, 4}, 100_000)
	objects := &store{all: map[string][]byte{"in": {9, 0, 0, 0}}}
	var fails error
	h, err := gpujobs.New(gpujobs.Options{
		AllowKernels: true, Objects: objects,
		Slot: func(context.Context, int64) (gpujobs.Slot, error) {
			open.Add(1)
			held++
			return slot{gpu{dev}, &open}, nil
		},
		Kernels: func(_ context.Context, name string, s *gpujob.KernelSpec) (*gpujob.KernelOutput, error) {
			if fails != nil {
				return nil, fails
			}
			if in := s.Args[0].Array; name != "cuda:7" || held != 1 || !bytes.Equal(in.Data, []byte{9, 0, 0, 0}) ||
				in.Object != "" || s.Entry != "k" {
				t.Errorf("the process gets %+v for %s, with %d places", s, name, held)
			}
			return &gpujob.KernelOutput{Arrays: map[string]gpujob.Array{
				"y": {Type: gpujob.F32, Shape: gpujob.Shape{100_000}, Data: large},
			}, Ran: gpujob.Ran{Seconds: 2}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := gpujob.Array{Type: gpujob.I32, Shape: gpujob.Shape{1}, Object: "in"}
	s := &gpujob.KernelSpec{
		Source: "__global__ void k(int *x, float *y) {}", Entry: "k", Grid: []int{1}, Block: []int{1},
		Args: []gpujob.Arg{{Array: &in}, {
			Name: "y", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{100_000}},
		}},
	}
	j, err := gpujob.NewJob("j", s)
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.Jobs()[gpujob.KindKernel](t.Context(), j, func(any) {})
	if err != nil {
		t.Fatal(err)
	}
	o := out.(*gpujob.KernelOutput)
	if y := o.Arrays["y"]; y.Object != "gpu-j-y" || y.Data != nil || !bytes.Equal(objects.all[y.Object], large) {
		t.Errorf("the output is %+v", y)
	}
	if o.Device != "cuda:7" || o.Seconds != 2 {
		t.Errorf("it ran on %s for %v s", o.Device, o.Seconds)
	}
	held, fails = 0, jobs.Retry(jobs.Errorf(jobs.CodeDevice, "gone"))
	_, err = h.Jobs()[gpujob.KindKernel](t.Context(), j, func(any) {})
	if !jobs.Retryable(err) || !errors.Is(err, fails) {
		t.Errorf("%v, want the error of the process", err)
	}
	h.Close()
	open.Wait()
}
