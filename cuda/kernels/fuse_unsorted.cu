// The kernels fuse_unsorted_* add rows to the nodes of a range, by atomics; see kernels.FuseUnsortedArgs. Wide ones
// are for rows of more than 512 bytes.
#include "fuse_unsorted.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, RESIDENT)
NAME(const uint4 *rows, const unsigned *members, const unsigned *weights, unsigned agents,
  unsigned low, unsigned high, unsigned nodes, unsigned dim, unsigned flags, float *sums, unsigned long long *tallies,
  unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Unsorted u = {rows, members, weights, agents, low, high, nodes, dim, flags, sums, tallies};
  fuse_unsorted<ROWS_OF, ROWS_WIDE>(u, scratch, sequence, result);
}
