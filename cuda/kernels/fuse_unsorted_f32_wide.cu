// fuse_unsorted_f32_wide adds f32 rows of more than 512 bytes to the nodes of a range, by atomics; see
// kernels.FuseUnsortedParams.
#include "fuse_unsorted.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, 2)
fuse_unsorted_f32_wide(const uint4 *rows, const unsigned *members, const unsigned *weights, unsigned agents,
  unsigned low, unsigned high, unsigned nodes, unsigned dim, unsigned flags, float *sums, unsigned long long *tallies,
  unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Unsorted u = {rows, members, weights, agents, low, high, nodes, dim, flags, sums, tallies};
  fuse_unsorted<F32, true>(u, scratch, sequence, result);
}
