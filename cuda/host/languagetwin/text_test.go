package languagetwin_test

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// shims are the functions of CUDA that the emulation of agents does not have.
const shims = `
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
`

// TestKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestKernelsOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: launches.LanguageKernels(), Random: launches.RandomLanguage, Count: testkit.Of(60, 12), Shims: shims,
		Size:    func(r *rand.Rand) int { return r.IntN(700) },
		Program: "emulate_fuse.cpp",
	}.Test(t)
}
