// fuse_starts gives each node a stretch of places as long as its count; see kernels.FuseStartsArgs. Any order of the
// stretches will do, so a warp takes places for all its nodes by one addition to the number of places taken, and no
// block waits for another.
#include "fuse_added.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK)
fuse_starts(unsigned nodes, unsigned *counts) {
  const int each = 8; // nodes a thread: a warp adds once for 256
  const unsigned present = lanes_present(), lane = threadIdx.x % 32, last = 31 - __clz(present);
  for (u64 base = (u64)blockIdx.x * blockDim.x * each; base < nodes; base += (u64)gridDim.x * blockDim.x * each) {
    unsigned start[each], taken = 0;
#pragma unroll
    for (int j = 0; j < each; j++) {
      const u64 m = base + (u64)j * blockDim.x + threadIdx.x;
      start[j] = m < nodes ? counts[m] : 0;
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
      unsigned sum = start[j];
#pragma unroll
      for (unsigned d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_up_sync(present, sum, d);
        if (lane >= d) sum += other;
      }
      start[j] = taken + sum - start[j];
      taken += __shfl_sync(present, sum, last);
    }
    unsigned from = 0;
    if (lane == last && taken > 0) from = atomicAdd(&counts[nodes], taken);
    from = __shfl_sync(present, from, last);
#pragma unroll
    for (int j = 0; j < each; j++) {
      const u64 m = base + (u64)j * blockDim.x + threadIdx.x;
      if (m < nodes) counts[m] = from + start[j];
    }
  }
}
