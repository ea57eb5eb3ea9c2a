// What the kernels of state vectors share.
#pragma once

typedef unsigned long long u64;

#define RUN_SIZE (1u << RUN_QUBITS)

// |a|^2 as an integer of scale 2^62. The squares are exact in double, and their sum is rounded once.
__device__ __forceinline__ u64 weight_of(float2 a) {
  const double x = a.x, y = a.y;
  return (u64)((x * x + y * y) * 4611686018427387904.0);
}

// The sum of a value over a warp, in all lanes.
__device__ __forceinline__ u64 sum_warp(u64 v) {
  for (unsigned d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
