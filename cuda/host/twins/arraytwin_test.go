package twins_test

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// shims are the functions of CUDA that the emulation of tallies does not have.
const arrayShims = `
template <class T> static inline unsigned __match_any_sync(unsigned, T v) {
  static T lanes[1024];
  const unsigned first = threadIdx.x / 32 * 32;
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    if (lanes[first + lane] == v) all |= 1u << lane;
  __syncwarp(0);
  return all;
}
template <class T> static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
template <class T> static inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
`

// TestArrayKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestArrayKernelsOnTheCPU(t *testing.T) {
	sizes := []int{0, 1, 31, 64, 300, 1025, 5000}[:testkit.Of(7, 6)]
	launches.Texts{
		Kernels: launches.ArrayKernels(), Random: launches.RandomArrays, Count: testkit.Of(12, 3), Shims: arrayShims,
		Size: func(r *rand.Rand) int { return sizes[r.IntN(len(sizes))] },
	}.Test(t)
}
