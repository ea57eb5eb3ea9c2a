// fuse_means divides the sums of each node by its weight; see kernels.FuseMeansArgs. A thread has four columns at a
// time.
#include "fuse.cuh"

__device__ __forceinline__ float mean(float sum, u64 weight, float by) { return weight > 0 ? sum / by : 0.0f; }

extern "C" __global__ void __launch_bounds__(1024)
fuse_means(const float *sums, const unsigned long long *tallies, unsigned nodes, unsigned dim, float *means) {
  const unsigned quads = dim / 4;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (u64)nodes * quads; i += (u64)gridDim.x * blockDim.x) {
    const u64 weight = tallies[2 * (i / quads) + 1];
    const float by = (float)weight * (1.0f / FUSE_ONE);
    const float4 v = ((const float4 *)sums)[i];
    ((float4 *)means)[i] = make_float4(mean(v.x, weight, by), mean(v.y, weight, by), mean(v.z, weight, by),
        mean(v.w, weight, by));
  }
}
