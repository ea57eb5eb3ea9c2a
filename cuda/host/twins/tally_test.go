package twins_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestTallyKernelsOnTheCPU runs the CUDA text of the tally kernels, compiled for the CPU: counts,
// decisions, rounds and scratch memory must equal the plainest way to count, whatever the ballots
// and the launch shape.
func TestTallyKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	var names []string
	for _, kernel := range kernels.Names() {
		source, _ := kernels.Lookup(kernel)
		// which TestWideKernelsOnTheCPU runs
		if strings.HasPrefix(kernel, "tally_") && source.WholeWarps && kernels.WeightedKernels()[kernel] == 0 {
			names = append(names, kernel)
		}
	}
	for _, kernel := range testkit.Few(names, 3) { // the compiler takes a second or two for each
		source, _ := kernels.Lookup(kernel)
		t.Run(kernel, func(t *testing.T) {
			if kernel == "tally_resident_u8_16" && !testkit.Long() {
				t.Skip("seconds of waiting for a request, as tally_resident_u8_8 of the same text has them")
			}
			t.Parallel()
			params := fmt.Sprintf("-DPARAMS=%d", len(source.Params))
			program := emulation.Compile(t, "emulate_tally.cpp", source,
				slices.Concat(emulation.Sanitized, []string{params})...)
			r := rand.New(rand.NewPCG(13, 14))
			samples := testkit.Of(8, 2) // emulated threads are slow
			if source.Grid > 0 {
				samples = testkit.Of(8, 1) // a resident kernel has many blocks
			}
			for range samples {
				c := launches.RandomTally(r, kernel,
					[]int{0, 1, 17, 31, 64, 300, 1025, 5000, 40_000}[r.IntN(testkit.Of(9, 7))])
				threads, blocks := 32*(1+r.IntN(2)), max(source.Grid, 1+r.IntN(3))
				emulateTally(t, program, &c, threads, blocks)
			}
			for range testkit.Of(60, 30) { // groups of all kinds of sizes
				if !strings.HasPrefix(kernel, "tally_groups_") {
					break
				}
				c := launches.RandomTally(r, kernel, 700+r.IntN(400))
				emulateTally(t, program, &c, 32*(1+r.IntN(2)), 1+r.IntN(2))
			}
		})
	}
}

func emulateTally(t *testing.T, program string, c launches.Launch, threads, blocks int) {
	t.Helper()
	params := c.Params()
	after, err := launches.Emulate(t, program, params, threads, blocks)
	if err == nil {
		err = launches.Compare(c.Name(), after, params)
	}
	if err != nil {
		t.Fatalf("%v, %d threads, %d blocks: %v", c, threads, blocks, err)
	}
}
