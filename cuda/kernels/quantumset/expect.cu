// state_expect adds the terms of Pauli strings that flip the same qubits; see quantumset.go. A warp takes a run of
// amplitudes whose highest flipped qubit is 0, and their partners. The sums are integers, so they do not depend on an
// order.

// Replaces the values of a run by their sums with all signs: place s has the sum of value i by -1 for each bit of i&s.
// Value i is in lane i%32.
__device__ __forceinline__ void all_signs(u64 (&v)[RUN_SIZE / 32]) {
#pragma unroll
  for (unsigned d = 1; d < RUN_SIZE / 32; d *= 2)
#pragma unroll
    for (unsigned k = 0; k < RUN_SIZE / 32; k++)
      if (!(k & d)) {
        const u64 x = v[k], y = v[k | d];
        v[k] = x + y, v[k | d] = x - y;
      }
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2)
#pragma unroll
    for (unsigned k = 0; k < RUN_SIZE / 32; k++) {
      const u64 other = __shfl_xor_sync(0xffffffffu, v[k], d);
      v[k] = threadIdx.x & d ? other - v[k] : v[k] + other;
    }
}

#define EXPECT_WARPS 8

extern "C" __global__ void __launch_bounds__(256)
state_expect(const float *amplitudes, unsigned long long runs, unsigned qubits, unsigned long long flips,
             const unsigned long long *strings, unsigned count, unsigned long long *sums) {
  __shared__ u64 table[EXPECT_WARPS][RUN_SIZE];
  const float2 *const all = (const float2 *)amplitudes;
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  u64 *const place = table[threadIdx.x / 32];
  u64 top = flips; // the highest flipped qubit
  while (top & (top - 1)) top &= top - 1;
  // A lane has the strings lane and lane+32 of the row.
  u64 signs[MAX_STRINGS / 32], flags[MAX_STRINGS / 32], sum[MAX_STRINGS / 32], row = 0;
  bool imaginary = false;
#pragma unroll
  for (unsigned j = 0; j < MAX_STRINGS / 32; j++) {
    const unsigned s = 32 * j + lane;
    signs[j] = s < count ? strings[2 * s] : 0, flags[j] = s < count ? strings[2 * s + 1] : 0, sum[j] = 0;
    imaginary |= __ballot_sync(0xffffffffu, flags[j] & EXPECT_IMAGINARY) != 0;
  }
  for (u64 run = (u64)blockIdx.x * warps + threadIdx.x / 32; run < runs; run += (u64)gridDim.x * warps) {
    const u64 first = run << RUN_QUBITS;
    if (first & top) continue;
    if (first >> qubits != row) {
#pragma unroll
      for (unsigned j = 0; j < MAX_STRINGS / 32; j++) {
        if (32 * j + lane < count && sum[j] != 0) atomicAdd(sums + row * count + 32 * j + lane, sum[j]);
        sum[j] = 0;
      }
      row = first >> qubits;
    }
    for (unsigned part = 0; part <= (unsigned)imaginary; part++) {
      u64 v[RUN_SIZE / 32]; // real or imaginary parts of conj(a[i^flips]) a[i]
#pragma unroll
      for (unsigned k = 0; k < RUN_SIZE / 32; k++) {
        const u64 i = first + 32 * k + lane;
        v[k] = 0;
        if (i & top) continue;
        const float2 a = all[i], b = all[i ^ flips];
        const double x = a.x, y = a.y, u = b.x, w = b.y;
        v[k] = (u64)(long long)((part ? y * u - x * w : x * u + y * w) * 4611686018427387904.0);
      }
      all_signs(v);
#pragma unroll
      for (unsigned k = 0; k < RUN_SIZE / 32; k++) place[32 * k + lane] = v[k];
      __syncwarp(0xffffffffu);
#pragma unroll
      for (unsigned j = 0; j < MAX_STRINGS / 32; j++) {
        if ((flags[j] & EXPECT_IMAGINARY) != (part ? EXPECT_IMAGINARY : 0)) continue;
        const u64 above = signs[j] & first, term = place[signs[j] & (RUN_SIZE - 1)];
        const unsigned ones = __popc((unsigned)above) + __popc((unsigned)(above >> 32));
        sum[j] += (ones + (flags[j] & EXPECT_NEGATIVE ? 1 : 0)) & 1 ? 0 - term : term;
      }
      __syncwarp(0xffffffffu);
    }
  }
#pragma unroll
  for (unsigned j = 0; j < MAX_STRINGS / 32; j++)
    if (32 * j + lane < count && sum[j] != 0) atomicAdd(sums + row * count + 32 * j + lane, sum[j]);
}
