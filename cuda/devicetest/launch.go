package devicetest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// asCase converts the parameters of a launch to the parameters of a case. A buffer whose wanted
// content differs from its content is an output.
func asCase(launch []launches.Param) (params []param) {
	for _, p := range launch {
		c := param{mem: p.Mem, out: !bytes.Equal(p.Mem, p.Want), arg: p.Arg}
		if p.Mem == nil && p.Arg.Kind() == 0 {
			c.mem = []byte{} // an empty buffer, not a scalar
		}
		params = append(params, c)
	}
	return params
}

func launchCase(kernel string) testCase {
	return testCase{compiled: true, make: func(r *rand.Rand, n int) []param {
		return asCase(launches.RandomLaunch(r, kernel, n).Params())
	}}
}

func init() {
	for _, kernel := range launches.Kernels() {
		cases[kernel] = launchCase(kernel)
	}
}

// checkLaunch makes a launch and compares all of its memory with the wanted content, bit by bit.
// The shape g is adapted to what the kernel allows.
func checkLaunch(t *testing.T, d device.Device, l launches.Launch, g device.Geometry) {
	t.Helper()
	if src, _ := kernels.Lookup(l.Name()); src.MaxBlock > 0 {
		g.Block = min(g.Block, src.MaxBlock)
	}
	if src, _ := kernels.Lookup(l.Name()); src.WholeWarps {
		g.Block = (g.Block + 31) / 32 * 32
	}
	all := l.Params()
	got := runCase(t, d, l.Name(), g, asCase(all))
	for i, p := range all {
		if p.Arg.Kind() != 0 {
			continue
		}
		if err := launches.EqualWithin(got[i], p.Want, 0); err != nil {
			t.Fatalf("%v, grid %d, block %d: parameter %d: %v", l, g.Grid, g.Block, i, err)
		}
	}
}

// testLaunches compares random launches of launches.Kernels with their plain twins. Two launches of
// each kernel have about a million elements, in the shape that a large device uses.
func testLaunches(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	if !compiles(d) {
		t.Skip("this driver runs no compiled code")
	}
	each, large := testkit.Of(400, 20), testkit.Of(2, 1)
	if slow(d) {
		each, large = each/4, 0
	}
	sizes := []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 257, 1023, 1024, 1025, 4099, 20_000}
	r := rand.New(rand.NewPCG(21, 22))
	for _, kernel := range launches.Kernels() {
		t.Run(kernel, func(t *testing.T) {
			for range each {
				checkLaunch(t, d, launches.RandomLaunch(r, kernel, sizes[r.IntN(len(sizes))]),
					device.Geometry{Grid: grids[r.IntN(len(grids))], Block: blocks[r.IntN(len(blocks))]})
			}
			for range large {
				l := launches.RandomLaunch(r, kernel, 999_999+r.IntN(3))
				checkLaunch(t, d, l, device.Geometry{Grid: 264, Block: 256})
			}
		})
	}
}
