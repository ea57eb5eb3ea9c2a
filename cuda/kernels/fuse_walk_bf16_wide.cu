// fuse_walk_bf16_wide adds bf16 rows of more than 512 bytes to nodes by their places, by atomics; see
// kernels.FuseWalkParams.
#include "fuse_walk.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, 2)
fuse_walk_bf16_wide(const uint4 *rows, const unsigned *members, const unsigned *weights, const unsigned *order,
  const unsigned *starts, unsigned agents, unsigned nodes, unsigned dim, unsigned flags, float *sums,
  unsigned long long *tallies, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Unsorted u = {rows, members, weights, agents, 0, nodes, nodes, dim, flags, sums, tallies};
  fuse_walk<BF16, true>(u, order, starts, scratch, sequence, result);
}
