package host_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestAgentKernelsOnTheCPU runs the CUDA text of the kernels of agent-addressed swarms, compiled for the CPU, beside their Go
// twins: pages, votes, decisions, tallies and counters must be the same bits, whatever the swarm and the launch shape.
func TestAgentKernelsOnTheCPU(t *testing.T) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ to compile the kernels for the CPU with")
	}
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	dev, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, kernel := range devicetest.AgentKernels {
		program := compileAgents(t, compiler, kernel, "-DEMULATED_MMA")
		r := rand.New(rand.NewPCG(31, 32))
		for _, n := range []int{0, 1, 33, 129, 300, 700} {
			checkAgents(t, dev, kernel, program, r, n)
		}
	}
	// The sums of chips without tensor cores for bytes, which exchange each of theirs between lanes.
	for _, kernel := range []string{"gru_tick_h8_f32", "gru_step_h16_bf16"} {
		checkAgents(t, dev, kernel, compileAgents(t, compiler, kernel), rand.New(rand.NewPCG(33, 34)), 40)
	}
}

// compileAgents compiles a kernel for the CPU with more options.
func compileAgents(t *testing.T, compiler, kernel string, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, _ := kernels.Lookup(kernel)
	text, program := filepath.Join(dir, source.File), filepath.Join(dir, kernel)
	if err := os.WriteFile(text, []byte(source.Code), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(options,
		"-std=c++17", "-O1", "-ffp-contract=off", "-pthread", "-Wno-unknown-pragmas", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
		fmt.Sprintf("-DKERNEL_FILE=%q", text), "-DKERNEL="+kernel, fmt.Sprintf("-DARGS=%d", len(source.Params)), "-o", program, "testdata/emulate_fuse.cpp",
	)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", source.File, err, out)
	}
	return program
}

// checkAgents compares a launch over about n agents with the twin's.
func checkAgents(t *testing.T, dev device.Device, kernel, program string, r *rand.Rand, n int) {
	t.Helper()
	params := devicetest.RandomAgents(r, kernel, n)
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
func twin(t *testing.T, d device.Device, kernel string, params []devicetest.Param) {
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
