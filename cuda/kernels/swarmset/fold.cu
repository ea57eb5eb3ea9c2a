// swarm_fold adds up runs of sums of the same node, and their counts; see swarmset.go. A thread has a column of a run.
#define IN_FLIGHT 8

extern "C" __global__ void __launch_bounds__(256)
swarm_fold(const float *in, const unsigned *in_counts, const unsigned *in_firsts, const unsigned *firsts,
           unsigned count, unsigned width, float *sums, unsigned *counts) {
  const u64 all = (u64)firsts[count] * width, step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const unsigned item = (unsigned)(i / width), column = (unsigned)(i % width), node = node_of(firsts, count, item);
    const unsigned first = in_firsts[node] + (item - firsts[node]) * RUN_ROWS, left = in_firsts[node + 1] - first;
    const unsigned n = left < RUN_ROWS ? left : RUN_ROWS;
    const float *from = in + (u64)first * width + column;
    float sum = 0.0f;
    unsigned added = 0;
    for (unsigned k = 0; k < n; k += IN_FLIGHT) {
      float v[IN_FLIGHT];
      unsigned c[IN_FLIGHT];
#pragma unroll
      for (unsigned j = 0; j < IN_FLIGHT; j++) {
        v[j] = k + j < n ? from[(u64)(k + j) * width] : 0.0f;
        c[j] = k + j < n && column == 0 ? in_counts[first + k + j] : 0;
      }
#pragma unroll
      for (unsigned j = 0; j < IN_FLIGHT; j++) {
        if (k + j < n) sum = __fadd_rn(sum, v[j]);
        added += c[j];
      }
    }
    sums[i] = sum;
    if (column == 0) counts[item] = added;
  }
}
