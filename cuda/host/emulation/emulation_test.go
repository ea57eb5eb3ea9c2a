package emulation_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestLaunch: a launch of a kernel writes its memory and leaves the rest alone.
func TestLaunch(t *testing.T) {
	source, ok := kernels.Lookup("fuse_place")
	if !ok {
		t.Fatal("no kernel fuse_place")
	}
	program := emulation.Compile(t, "emulate_fuse.cpp", source, append(emulation.Sanitized, "-DPARAMS=6")...)
	memory := func(words ...uint32) emulation.Param { return emulation.Param{Mem: device.Bytes(words)} }
	count := func(n uint64) emulation.Param { return emulation.Param{Scalar: true, Bits: n} }
	params := []emulation.Param{ // the agents 0 and 2 are of node 1, agent 1 is of node 0
		memory(1, 0, 1), count(3), count(2), memory(0, 1, 3), memory(0, 0, 1), memory(9, 9, 9),
	}
	after, err := emulation.Launch(t, program, params, 32, 1)
	if err != nil {
		t.Fatal(err)
	}
	const head = kernels.FuseHead
	if want := device.Bytes([]uint32{1 | head, 0 | head, 2}); !bytes.Equal(after[5], want) {
		t.Errorf("places %x, want %x", after[5], want)
	}
	for i, p := range params[:5] {
		if !bytes.Equal(after[i], p.Mem) {
			t.Errorf("parameter %d changed", i)
		}
	}
}

// TestBarriers: a kernel that exchanges values through shared memory is right with a barrier and
// wrong without one, and a barrier that some threads miss ends the program.
func TestBarriers(t *testing.T) {
	const threads = 96
	source := func(name, barrier string) kernels.Source {
		return kernels.Source{Name: name, File: name + ".cu", Code: fmt.Sprintf(`
extern "C" __global__ void %s(unsigned *out, unsigned add) {
  __shared__ unsigned mine[%d];
  mine[threadIdx.x] = threadIdx.x + add;
  %s
  out[threadIdx.x] = mine[%d - 1 - threadIdx.x];
}`, name, threads, barrier, threads)}
	}
	want := make([]uint32, threads)
	for i := range want {
		want[i] = uint32(threads-1-i) + 5
	}
	run := func(name, barrier string) ([]byte, error) {
		program := emulation.Compile(t, "emulate_fuse.cpp", source(name, barrier),
			append(emulation.Sanitized, "-DPARAMS=2")...)
		after, err := emulation.Launch(t, program, []emulation.Param{
			{Mem: make([]byte, 4*threads)}, {Scalar: true, Bits: 5},
		}, threads, 1)
		if err != nil {
			return nil, err
		}
		return after[0], nil
	}
	if out, err := run("with", "__syncthreads();"); err != nil ||
		!bytes.Equal(out, device.Bytes(want)) {
		t.Errorf("with a barrier: %x, %v, want %x", out, err, device.Bytes(want))
	}
	if out, err := run("without", ""); err != nil || bytes.Equal(out, device.Bytes(want)) {
		t.Errorf("without a barrier: %v, want a wrong result", err)
	}
	const missed = "a barrier that not all threads reach"
	if _, err := run("some", "if (threadIdx.x) __syncthreads();"); err == nil ||
		!strings.Contains(err.Error(), missed) {
		t.Errorf("a barrier that thread 0 does not reach: %v, want %q", err, missed)
	}
}
