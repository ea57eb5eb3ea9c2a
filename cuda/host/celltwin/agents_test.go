package celltwin_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// TestAgentKernelsOnTheCPU runs the CUDA text of the kernels of agent-addressed swarms, compiled
// for the CPU, beside their Go twins: pages, votes, decisions, tallies and counters must be the
// same bits, whatever the swarm and the launch shape.
func TestAgentKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	dev, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, kernel := range launches.AgentKernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			program := compileAgents(t, kernel, "-DEMULATED_MMA")
			sizes := testlong.Of(6, 3)
			if strings.Contains(kernel, "_told_h8") { // groups of a part of a warp and of several warps
				sizes = 6
			}
			r := rand.New(rand.NewPCG(31, 32))
			for _, n := range []int{0, 1, 33, 129, 300, 700}[:sizes] {
				checkAgents(t, dev, kernel, program, r, n)
			}
			if strings.Contains(kernel, "_told_h8") { // all ways to merge, and all choices of nodes
				for range 24 {
					checkAgents(t, dev, kernel, program, r, 250)
				}
			}
			for range testlong.Of(12, 0) { // some of large groups, whose sums are kept
				if strings.Contains(kernel, "_told_h8") {
					checkAgents(t, dev, kernel, program, r, 3000)
				}
			}
		})
	}
	// The sums of chips without tensor cores for bytes, which exchange each of theirs between
	// lanes.
	for _, kernel := range []string{"gru_tick_h8_f32", "gru_step_h16_bf16"} {
		checkAgents(t, dev, kernel, compileAgents(t, kernel), rand.New(rand.NewPCG(33, 34)), 40)
	}
}

// compileAgents compiles a kernel for the CPU with more options.
func compileAgents(t *testing.T, kernel string, options ...string) string {
	t.Helper()
	source, _ := kernels.Lookup(kernel)
	options = append(options, fmt.Sprintf("-DARGS=%d", len(source.Params)))
	return emulation.Compile(
		t,
		"emulate_fuse.cpp",
		source,
		slices.Concat(options, emulation.Exact, emulation.Sanitized)...)
}

// checkAgents compares a launch over about n agents with the twin's.
func checkAgents(t *testing.T, dev device.Device, kernel, program string, r *rand.Rand, n int) {
	t.Helper()
	params := launches.RandomAgents(r, kernel, n)
	twin(t, dev, kernel, params)
	threads, blocks := []int{32, 64, 128}[r.IntN(3)], 1+r.IntN(3)
	after, err := emulateLaunch(t, program, params, threads, blocks)
	if err == nil {
		err = equalMemory(after, params)
	}
	if err != nil {
		t.Fatalf("%s, about %d agents, %d threads, %d blocks: %v", kernel, n, threads, blocks, err)
	}
}

// twin launches a kernel on the host device; what it leaves becomes what is wanted.
func twin(t *testing.T, d device.Device, kernel string, params []launches.Param) {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.NewStream()
	ok(err)
	k, err := d.Kernel(kernel)
	ok(err)
	args, buffers := make([]device.Arg, len(params)), make([]device.Buffer, len(params))
	for i, p := range params {
		if args[i] = p.Arg; p.Arg.Kind() != 0 {
			continue
		}
		buffers[i], err = d.Alloc(int64(len(p.Mem)), "twin")
		ok(err)
		ok(buffers[i].Write(0, p.Mem))
		args[i] = device.Ptr(buffers[i])
	}
	ok(s.Launch(k, device.Geometry{Grid: 3, Block: 64}, args...))
	ok(s.Sync(t.Context()))
	for i, b := range buffers {
		if b == nil {
			continue
		}
		params[i].Want = make([]byte, len(params[i].Mem))
		ok(b.Read(0, params[i].Want))
		ok(b.Close())
	}
	ok(s.Close())
}

// emulateLaunch runs a launch and returns the memory of each parameter after it.
func emulateLaunch(t *testing.T, program string, params []launches.Param, threads, blocks int) ([][]byte, error) {
	t.Helper()
	converted := make([]emulation.Param, len(params))
	for i, p := range params {
		converted[i] = emulation.Param{Mem: p.Mem, Scalar: p.Arg.Kind() != 0, Bits: p.Arg.Bits()}
	}
	return emulation.Launch(t, program, converted, threads, blocks)
}

// equalMemory compares the memory of each parameter with what is wanted.
func equalMemory(after [][]byte, params []launches.Param) error {
	for i, p := range params {
		for k, want := range p.Want {
			if after[i][k] != want {
				return fmt.Errorf("parameter %d: byte %d of %d is %#x, want %#x", i, k, len(p.Want), after[i][k], want)
			}
		}
	}
	return nil
}
