package devicetest

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// tallyCase returns the case of a tally kernel. RandomTally has its shape, which mixes all rules
// and kinds of ballots.
func tallyCase(kernel string) testCase {
	return testCase{compiled: true, make: func(r *rand.Rand, n int) []param {
		t := launches.RandomTally(r, kernel, n)
		return asCase(t.Params())
	}}
}

// testTallies compares random launches with the plainest way to count: all kinds of ballots,
// candidates, rules, alignments, stale rounds and launch shapes. A real GPU also counts a hundred
// million ballots.
func testTallies(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	if !compiles(d) {
		t.Skip("this driver runs no compiled code")
	}
	rounds := testkit.Of(1500, 150)
	if slow(d) {
		rounds /= 3
	}
	sizes := []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 257, 1023, 1024, 1025, 4099, 20_000}
	r := rand.New(rand.NewPCG(11, 12))
	for _, kernel := range launches.TallyKernels {
		t.Run(kernel, func(t *testing.T) {
			for range rounds / len(launches.TallyKernels) {
				c := launches.RandomTally(r, kernel, sizes[r.IntN(len(sizes))])
				g := device.Geometry{Grid: grids[r.IntN(len(grids))], Block: 32 * (1 + r.IntN(kernels.TallyThreads/32))}
				if c.Resident() {
					g.Grid = kernels.ResidentBlocks
				}
				checkTally(t, d, c, g)
			}
			sizes := []int{999_999, 1_000_000, 1_000_001}
			if !testkit.Long() {
				sizes = sizes[r.IntN(3):][:1]
			}
			if p := d.Properties(); !testing.Short() && p.ComputeMajor > 0 {
				sizes = append(sizes, 100_000_000)
			}
			if slow(d) {
				sizes = nil
			}
			for _, n := range sizes {
				for range max(1, min(testkit.Of(3, 1), 10_000_000/n)) { // the reference takes seconds for the largest
					c, g := launches.RandomTally(r, kernel, n), device.Geometry{Grid: 264, Block: 256}
					if c.Resident() {
						g.Grid = kernels.ResidentBlocks
					}
					checkTally(t, d, c, g)
				}
			}
		})
	}
}

// checkTally makes a launch and compares all of its memory with the wanted content, bit by bit.
func checkTally(t *testing.T, d device.Device, c launches.Tally, g device.Geometry) {
	t.Helper()
	all := c.Params()
	got := runCase(t, d, c.Kernel, g, asCase(all))
	for i, p := range all {
		if p.Arg.Kind() != 0 {
			continue
		}
		if err := launches.EqualWithin(got[i], p.Want, 0); err != nil {
			t.Fatalf("%v, grid %d, block %d: parameter %d: %v", c, g.Grid, g.Block, i, err)
		}
	}
}
