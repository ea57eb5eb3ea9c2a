package twins_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestWideKernelsOnTheCPU is TestTallyKernelsOnTheCPU for the other tally kernels. Those with
// weights are compiled with sums that are moved on after few ballots, which otherwise takes more
// ballots than a test has; with less ballots than that they are moved at the end, as in the kernels
// that are not compiled so.
func TestWideKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	names := slices.Sorted(maps.Keys(kernels.WeightedKernels()))
	for _, kernel := range testkit.Few(names, 3) {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			source, _ := kernels.Lookup(kernel)
			program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Sanitized, []string{
				fmt.Sprintf("-DPARAMS=%d", len(source.Params)), "-DREGISTER_BALLOTS=64u", "-DROW_BALLOTS=64u",
				"-DCARRY_ROUNDS=2",
			})...)
			r := rand.New(rand.NewPCG(23, 24))
			blocks := []int{32, 64, 96, 128}
			for range testkit.Of(12, 3) {
				l := launches.RandomLaunch(r, kernel,
					[]int{0, 1, 17, 31, 64, 300, 1025, 5000, 20_000}[r.IntN(testkit.Of(9, 7))])
				emulateTally(t, program, l, blocks[r.IntN(len(blocks))], 1+r.IntN(3))
			}
		})
	}
}
