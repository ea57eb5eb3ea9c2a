// fuse_walk_f32 adds f32 rows of up to 512 bytes to nodes by their places, by atomics; see kernels.FuseWalkParams.
#include "fuse_walk.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, FUSE_BLOCKS)
fuse_walk_f32(const uint4 *rows, const unsigned *members, const unsigned *weights, const unsigned *order,
  const unsigned *starts, unsigned agents, unsigned nodes, unsigned dim, unsigned flags, float *sums,
  unsigned long long *tallies, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Unsorted u = {rows, members, weights, agents, 0, nodes, nodes, dim, flags, sums, tallies};
  fuse_walk<F32, false>(u, order, starts, scratch, sequence, result);
}
