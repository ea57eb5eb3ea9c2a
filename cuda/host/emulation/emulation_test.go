package emulation_test

import (
	"bytes"
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
	program := emulation.Compile(t, "emulate_fuse.cpp", source, append(emulation.Sanitized, "-DARGS=6")...)
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
