// fuse_sorted_bf16 sums runs of bf16 rows of up to 512 bytes into nodes, or into sums of runs; see
// kernels.FuseSortedParams.
#include "fuse_sorted.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, FUSE_BLOCKS)
fuse_sorted_bf16(const uint4 *rows, const unsigned *order, const unsigned *weights, const uint4 *runs, unsigned count,
  unsigned dim, unsigned flags, float *sums, unsigned long long *tallies, float *part_sums,
  unsigned long long *part_tallies, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Sorted s = {rows, order, weights, runs, count, dim, flags, sums, tallies, part_sums, part_tallies};
  fuse_sorted<BF16, false>(s, scratch, sequence, result);
}
