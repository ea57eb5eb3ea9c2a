// The kernels fuse_walk_* add rows to nodes by their places, by atomics; see kernels.FuseWalkArgs. Wide ones are
// for rows of more than 512 bytes.
#include "fuse_walk.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, RESIDENT)
NAME(const uint4 *rows, const unsigned *members, const unsigned *weights, const unsigned *order,
  const unsigned *starts, unsigned agents, unsigned nodes, unsigned dim, unsigned flags, float *sums,
  unsigned long long *tallies, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Unsorted u = {rows, members, weights, agents, 0, nodes, nodes, dim, flags, sums, tallies};
  fuse_walk<ROWS_OF, ROWS_WIDE>(u, order, starts, scratch, sequence, result);
}
