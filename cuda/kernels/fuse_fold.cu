// fuse_fold adds the nodes of several devices up; see kernels.FuseFoldArgs. A thread has four columns of a node at a
// time, whose sums it adds in double, rank by rank from +0, so that the bits depend on the order of the ranks alone.
#include "fuse.cuh"

#define FOLD_VALUE 1u
#define FOLD_OVERFLOW 2u

__device__ __forceinline__ bool odd(float v) { return (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u; }

extern "C" __global__ void __launch_bounds__(1024)
fuse_fold(const uint4 *parts, unsigned vectors, unsigned ranks, unsigned nodes, unsigned dim, float *sums,
    unsigned long long *tallies, unsigned *faults) {
  const unsigned quads = dim / 4;
  const u64 rows = (u64)nodes * quads, step = (u64)gridDim.x * blockDim.x;
  unsigned found = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += step) {
    double x = 0, y = 0, z = 0, w = 0;
    for (unsigned r = 0; r < ranks; r++) {
      const uint4 v = parts[(u64)r * vectors + i];
      if (F32::odd(v)) found |= FOLD_VALUE;
      x += __uint_as_float(v.x);
      y += __uint_as_float(v.y);
      z += __uint_as_float(v.z);
      w += __uint_as_float(v.w);
    }
    const float4 sum = make_float4((float)x, (float)y, (float)z, (float)w);
    if (odd(sum.x) || odd(sum.y) || odd(sum.z) || odd(sum.w)) found |= FOLD_VALUE;
    ((float4 *)sums)[i] = sum;
  }
  for (u64 m = (u64)blockIdx.x * blockDim.x + threadIdx.x; m < nodes; m += step) {
    u64 agents = 0, weight = 0;
    for (unsigned r = 0; r < ranks; r++) {
      const ulonglong2 v = ((const ulonglong2 *)(parts + (u64)r * vectors + rows))[m];
      agents += v.x;
      weight += v.y;
      if (agents < v.x || weight < v.y) found |= FOLD_OVERFLOW;
    }
    tallies[2 * m] = agents;
    tallies[2 * m + 1] = weight;
  }
  if (found != 0) atomicOr(faults, found);
}
