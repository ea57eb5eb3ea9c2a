package launches

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/fixture"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Texts is a comparison of the CUDA text of kernels, compiled for the processor, with their twins.
type Texts struct {
	Kernels []string
	// Random returns a random launch over about n elements, and Size a random n.
	Random func(r *rand.Rand, kernel string, n int) *Arrays
	Size   func(r *rand.Rand) int
	Count  int    // launches of each kernel
	Shims  string // functions of CUDA that emulate_tally.cpp lacks
}

// Test checks that the kernels leave in memory what their twins leave, for random launches in random
// shapes.
func (c Texts) Test(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	ref := fixture.Reference(t)
	for _, kernel := range c.Kernels {
		t.Run(kernel, func(t *testing.T) {
			source, _ := kernels.Lookup(kernel)
			source.Code = c.Shims + source.Code
			program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Exact, emulation.Sanitized,
				[]string{fmt.Sprintf("-DPARAMS=%d", len(source.Params))})...)
			r := rand.New(rand.NewPCG(33, 34))
			for range c.Count {
				n := c.Size(r)
				a := c.Random(r, kernel, n)
				threads, blocks := 32*(1+r.IntN(3)), 1+r.IntN(3)
				params := make([]emulation.Param, len(a.Params))
				for i, p := range a.Params {
					params[i] = emulation.Param{Mem: p.Mem, Scalar: p.Arg.Kind() != 0, Bits: p.Arg.Bits()}
				}
				got, err := emulation.Launch(t, program, params, threads, blocks)
				if err != nil {
					t.Fatalf("%d elements, %d threads, %d blocks: %v", n, threads, blocks, err)
				}
				for i, want := range a.On(t, ref, kernel) {
					if want != nil && !bytes.Equal(got[i], want) {
						t.Fatalf("%d elements, %d threads, %d blocks: %s differs from the twin's", n, threads, blocks,
							source.Params[i].Name)
					}
				}
			}
		})
	}
}
