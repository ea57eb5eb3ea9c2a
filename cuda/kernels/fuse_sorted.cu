// The kernels fuse_sorted_* sum runs of rows into nodes, or into sums of runs; see kernels.FuseSortedArgs. Wide ones
// are for rows of more than 512 bytes.
#include "fuse_sorted.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, RESIDENT)
NAME(const uint4 *rows, const unsigned *order, const unsigned *weights, const uint4 *runs,
  unsigned count, unsigned dim, unsigned flags, float *sums, unsigned long long *tallies, float *part_sums,
  unsigned long long *part_tallies, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Sorted s = {rows, order, weights, runs, count, dim, flags, sums, tallies, part_sums, part_tallies};
  fuse_sorted<ROWS_OF, ROWS_WIDE>(s, scratch, sequence, result);
}
