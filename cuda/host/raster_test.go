package host_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestRasterOnTheCPU runs the CUDA text of raster, compiled for the CPU: its cells have the bits of
// the plainest way to reduce, whatever the variable and the launch shape.
func TestRasterOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	source, _ := kernels.Lookup("raster")
	program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Sanitized, emulation.Exact,
		[]string{fmt.Sprintf("-DPARAMS=%d", len(source.Params))})...)
	r := rand.New(rand.NewPCG(31, 32))
	for range testkit.Of(60, 15) {
		c := launches.RandomRaster(r, []int{0, 1, 31, 32, 33, 300, 4000}[r.IntN(7)])
		all := c.Params()
		threads, blocks := 32*(1+r.IntN(3)), 1+r.IntN(3)
		after, err := launches.Emulate(t, program, all, threads, blocks)
		if err == nil {
			err = launches.Compare("raster", after, all)
		}
		if err != nil {
			t.Fatalf("%v, %d threads, %d blocks: %v", c, threads, blocks, err)
		}
	}
}
