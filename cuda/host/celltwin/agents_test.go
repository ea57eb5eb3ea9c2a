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
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestAgentKernelsOnTheCPU runs the CUDA text of the kernels of agent-addressed swarms, compiled
// for the CPU, and their Go twins: pages, votes, decisions, tallies and counters must be the same
// bits, whatever the swarm and the launch shape.
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
	for _, kernel := range testkit.Few(launches.AgentKernels, 6) { // the compiler takes seconds for each
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			program := compileAgents(t, kernel, "-DEMULATED_MMA")
			sizes := testkit.Of(6, 3)
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
			for i := range 12 { // agents that add themselves; some do not count
				if strings.Contains(kernel, "_told_h8") || i < 3 && strings.Contains(kernel, "_told") {
					compareAgents(t, dev, kernel, program, r, addingAgents(r, kernel, i))
				}
			}
			for range testkit.Of(12, 0) { // some of large groups, whose sums are kept
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

func compileAgents(t *testing.T, kernel string, options ...string) string {
	t.Helper()
	source, _ := kernels.Lookup(kernel)
	options = append(options, fmt.Sprintf("-DPARAMS=%d", len(source.Params)))
	return emulation.Compile(t, "emulate_fuse.cpp", source,
		slices.Concat(options, emulation.Exact, emulation.Sanitized)...)
}

func checkAgents(t *testing.T, dev device.Device, kernel, program string, r *rand.Rand, n int) {
	t.Helper()
	compareAgents(t, dev, kernel, program, r, launches.RandomAgents(r, kernel, n))
}

// addingAgents returns a launch in which agents add themselves to nodes: to one of all groups by
// attention, to nodes of up to 8 candidates, or otherwise. In some, units of agents are not finite.
func addingAgents(r *rand.Rand, kernel string, i int) []launches.Param {
	for {
		p := launches.RandomAgents(r, kernel, 300)
		a := launches.Named[kernels.ToldBound](p, nil)
		ok := a.Merge == kernels.AgentMergeAttention || a.By != kernels.AgentByGroup
		switch i % 3 {
		case 0:
			ok = a.Merge == kernels.AgentMergeAttention && a.By == kernels.AgentByGroup && a.Nodes == 1
		case 1:
			ok = a.Merge <= kernels.AgentMergeEMA && a.By == kernels.AgentByVote && a.Nodes <= 8
		}
		if !ok || a.Node == 0 || a.Nodes == 0 {
			continue
		}
		if i%2 == 0 {
			return p
		}
		spoil(r, kernel, a)
		source, _ := kernels.Lookup(kernel)
		steps := slices.IndexFunc(source.Params, func(p device.Param) bool { return p.Name == "steps" })
		p[steps].Arg = device.Uint32(0) // sums of such units have no promised bits
		return p
	}
}

// spoil makes some units of the agents of a launch infinite or NaN.
func spoil(r *rand.Rand, kernel string, a *kernels.ToldBound) {
	var class int
	if at := strings.Index(kernel, "_h"); at >= 0 {
		fmt.Sscanf(kernel[at:], "_h%d_", &class) //nolint:errcheck // a name of the list of kernels
	}
	elem := 4
	if strings.HasSuffix(kernel, "bf16") {
		elem = 2
	}
	for _, frame := range a.Frames {
		for range 2 {
			agent := r.IntN(int(a.Layout[0] * a.Layout[1]))
			unit := agent*2*class + r.IntN(class)
			at := a.Pages[a.PageBytes*uint64(frame)+uint64(a.Layout[2+kernels.AgentVarRow])+uint64(unit*elem):][:elem]
			at[elem-2], at[elem-1] = byte(0x80+r.IntN(2)*0x40), byte(0x7f)
		}
	}
}

func compareAgents(t *testing.T, dev device.Device, kernel, program string, r *rand.Rand, params []launches.Param) {
	t.Helper()
	for i, want := range launches.On(t, dev, kernel, params) {
		params[i].Want = want
	}
	threads, blocks := []int{32, 64, 128}[r.IntN(3)], 1+r.IntN(3)
	after, err := launches.Emulate(t, program, params, threads, blocks)
	if err == nil {
		err = launches.Compare(kernel, after, params)
	}
	if err != nil {
		t.Fatalf("%s, %d threads, %d blocks: %v", kernel, threads, blocks, err)
	}
}
