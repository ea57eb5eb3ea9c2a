package launches

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// Texts is a comparison of the CUDA text of kernels, compiled for the processor, with their twins.
type Texts struct {
	Kernels []string
	// Random returns a random launch over about n elements, and Size a random n.
	Random func(r *rand.Rand, kernel string, n int) *Arrays
	Size   func(r *rand.Rand) int
	Count  int    // launches of each kernel
	Shims  string // functions of CUDA that emulate_tally.cpp lacks
	Block  int    // threads of a block; 0: 32 to 96
	// Program is the program of package emulation that runs the kernels; "": emulate_tally.cpp.
	// Options are further ones of the compiler.
	Program string
	Options []string
}

// Test checks that the kernels leave in memory what their twins leave, for random launches in
// random shapes. It checks three of the kernels where long tests do not run.
func (c Texts) Test(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	ref := Reference(t)
	// The compiler takes about a second for each, which is minutes on a busy machine.
	for _, kernel := range testkit.Few(c.Kernels, 3) {
		t.Run(kernel, func(t *testing.T) {
			source, _ := kernels.Lookup(kernel)
			source.Code = c.Shims + source.Code
			options := slices.Concat(emulation.Exact, emulation.Sanitized, c.Options)
			program := emulation.Compile(t, cmp.Or(c.Program, "emulate_tally.cpp"), source,
				append(options, fmt.Sprintf("-DPARAMS=%d", len(source.Params)))...)
			r := rand.New(rand.NewPCG(33, 34))
			for range c.Count {
				n := c.Size(r)
				a := c.Random(r, kernel, n)
				threads, blocks := 32*(1+r.IntN(3)), 1+r.IntN(3)
				if c.Block > 0 {
					threads = c.Block
				}
				got, err := Emulate(t, program, a.Params, threads, blocks)
				if err != nil {
					t.Fatalf("%d elements, %d threads, %d blocks: %v", n, threads, blocks, err)
				}
				for i, want := range On(t, ref, kernel, a.Params) {
					if want != nil && !bytes.Equal(got[i], want) {
						t.Fatalf("%d elements, %d threads, %d blocks: %s differs from the twin's", n, threads,
							blocks, source.Params[i].Name)
					}
				}
			}
		})
	}
}

// Emulate runs a program of package emulation with a launch, and returns the memory of each
// parameter after it.
func Emulate(t testing.TB, program string, params []Param, threads, blocks int) ([][]byte, error) {
	t.Helper()
	converted := make([]emulation.Param, len(params))
	for i, p := range params {
		converted[i] = emulation.Param{Mem: p.Mem, Scalar: p.Arg.Kind() != 0, Bits: p.Arg.Bits()}
	}
	return emulation.Launch(t, program, converted, threads, blocks)
}

// Compare returns an error that names the first parameter whose memory is not the wanted one.
func Compare(kernel string, after [][]byte, params []Param) error {
	source, _ := kernels.Lookup(kernel)
	for i, p := range params {
		for k, want := range p.Want {
			if after[i][k] != want {
				return fmt.Errorf("%s: byte %d of %d is %#x, want %#x", source.Params[i].Name, k, len(p.Want),
					after[i][k], want)
			}
		}
	}
	return nil
}
