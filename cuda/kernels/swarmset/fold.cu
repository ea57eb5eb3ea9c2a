// swarm_fold adds up runs of sums of the same node, and their counts; see swarmset.go. A warp has a column of a run:
// its lanes read all items at once, and all lanes add them in their order.
#define PARTS (RUN_ROWS / 32)

extern "C" __global__ void __launch_bounds__(256)
swarm_fold(const float *in, const unsigned *in_counts, const unsigned *in_firsts, const unsigned *firsts,
           unsigned count, unsigned width, float *sums, unsigned *counts) {
  const unsigned lane = threadIdx.x % 32;
  const u64 all = (u64)firsts[count] * width, warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < all; i += warps) {
    const unsigned item = (unsigned)(i / width), column = (unsigned)(i % width), node = node_of(firsts, count, item);
    const unsigned first = in_firsts[node] + (item - firsts[node]) * RUN_ROWS, left = in_firsts[node + 1] - first;
    const unsigned n = left < RUN_ROWS ? left : RUN_ROWS;
    float v[PARTS], sum = 0.0f;
    unsigned added = 0;
#pragma unroll
    for (unsigned q = 0; q < PARTS; q++) {
      const unsigned at = first + 32 * q + lane;
      const bool there = 32 * q + lane < n;
      v[q] = there ? in[(u64)at * width + column] : 0.0f;
      if (there && column == 0) added += in_counts[at];
    }
#pragma unroll
    for (unsigned q = 0; q < PARTS; q++) {
      const unsigned end = n > 32 * q ? n - 32 * q : 0;
#pragma unroll
      for (unsigned k = 0; k < 32; k++) {
        const float next = __uint_as_float(__shfl_sync(FULL, __float_as_uint(v[q]), (int)k));
        if (k < end) sum = __fadd_rn(sum, next);
      }
    }
#pragma unroll
    for (unsigned d = 16; d > 0; d /= 2) added += __shfl_xor_sync(FULL, added, d);
    if (lane != 0) continue;
    sums[i] = sum;
    if (column == 0) counts[item] = added;
  }
}
