package devicetest

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// fuseCaseOf returns the case of a fusion kernel. Some kernels write rows in the order in which
// their blocks finish; settle sorts them before the comparison.
func fuseCaseOf(kernel string) testCase {
	settle := func(before []param, after [][]byte) {
		f := launches.Fuse{Kernel: kernel}
		for _, p := range before {
			f.Params = append(f.Params, launches.Param{Mem: p.mem, Arg: p.arg})
		}
		f.Settle(after)
	}
	return testCase{
		compiled: true, settle: settle,
		make: func(r *rand.Rand, n int) []param { return asCase(launches.RandomFuse(r, kernel, n).Params) },
	}
}

// testFusions compares random launches with plain loops: members of all kinds, rows of all lengths,
// runs, flags and shapes. Parameters without a kind are buffers; the scalars have nothing to
// compare.
func testFusions(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	if !compiles(d) {
		t.Skip("this driver runs no compiled code")
	}
	rounds := testkit.Of(900, 180)
	if testing.Short() {
		rounds = 90
	}
	sizes := []int{0, 1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 2047, 2048, 2049, 20_000}
	r := rand.New(rand.NewPCG(21, 22))
	for _, kernel := range launches.FuseKernels {
		t.Run(kernel, func(t *testing.T) {
			for range rounds / len(launches.FuseKernels) {
				f := launches.RandomFuse(r, kernel, sizes[r.IntN(len(sizes))])
				g := device.Geometry{
					Grid:  grids[r.IntN(len(grids))],
					Block: []int{1, 7, 31, 32, 33, 64, 100, 128, 256}[r.IntN(9)],
				}
				got := runCase(t, d, kernel, g, asCase(f.Params))
				f.Settle(got)
				for i, p := range f.Params {
					if p.Arg.Kind() != 0 {
						continue
					}
					if err := launches.EqualWithin(got[i], p.Want, 0); err != nil {
						t.Fatalf("%v, grid %d, block %d: parameter %d: %v", f, g.Grid, g.Block, i, err)
					}
				}
			}
		})
	}
}
