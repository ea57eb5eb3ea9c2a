package twins_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// shims are the functions of CUDA that the emulation of tallies does not have.
const swarmShims = `
template <class T> static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline unsigned __shfl_sync(unsigned, unsigned v, int lane) {
  static unsigned lanes[1024];
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  const unsigned got = lanes[threadIdx.x / 32 * 32 + lane];
  __syncwarp(0);
  return got;
}
static inline unsigned __shfl_up_sync(unsigned, unsigned v, unsigned d) {
  static unsigned lanes[1024];
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  const unsigned got = threadIdx.x % 32 >= d ? lanes[threadIdx.x - d] : v;
  __syncwarp(0);
  return got;
}
`

// TestSwarmKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestSwarmKernelsOnTheCPU(t *testing.T) {
	test := func(count int, sizes []int, kernels ...string) {
		launches.Texts{
			Kernels: kernels, Random: launches.RandomSwarm, Count: count, Shims: swarmShims,
			Size: func(r *rand.Rand) int { return sizes[r.IntN(len(sizes))] },
		}.Test(t)
	}
	all := slices.DeleteFunc(launches.SwarmKernels(), func(kernel string) bool { return kernel == swarmset.Bids })
	test(testkit.Of(12, 3), []int{0, 1, 31, 64, 300, 1025, 5000}[:testkit.Of(7, 6)], all...)
	// Bids passes over most agents only where a block has many.
	test(testkit.Of(40, 10), []int{1025, 20_000, 20_000, 20_000}, swarmset.Bids)
}
