// state_expect adds the terms of Pauli strings that flip the same qubits; see quantumset.go. A warp takes a run of
// amplitudes of which the highest flipped qubit is 0, and their partners. The sums are integers, so they do not depend
// on an order.
extern "C" __global__ void __launch_bounds__(256)
state_expect(const float *amplitudes, unsigned long long runs, unsigned qubits, unsigned long long flips,
             const unsigned long long *strings, unsigned count, unsigned long long *sums) {
  const float2 *const all = (const float2 *)amplitudes;
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  u64 top = flips; // the highest flipped qubit
  while (top & (top - 1)) top &= top - 1;
  for (u64 run = (u64)blockIdx.x * warps + threadIdx.x / 32; run < runs; run += (u64)gridDim.x * warps) {
    const u64 first = run << RUN_QUBITS;
    if (first & top) continue;
    long long even[RUN_SIZE / 32], odd[RUN_SIZE / 32]; // real and imaginary parts of conj(a[i^flips]) a[i]
#pragma unroll
    for (unsigned k = 0; k < RUN_SIZE / 32; k++) {
      const u64 i = first + 32 * k + lane;
      even[k] = odd[k] = 0;
      if (i & top) continue;
      const float2 a = all[i], b = all[i ^ flips];
      const double x = a.x, y = a.y, u = b.x, v = b.y;
      even[k] = (long long)((x * u + y * v) * 4611686018427387904.0);
      odd[k] = (long long)((y * u - x * v) * 4611686018427387904.0);
    }
    for (unsigned s = 0; s < count; s++) {
      const u64 signs = strings[2 * s], flags = strings[2 * s + 1];
      u64 sum = 0;
#pragma unroll
      for (unsigned k = 0; k < RUN_SIZE / 32; k++) {
        const u64 i = first + 32 * k + lane, term = (u64)(flags & EXPECT_IMAGINARY ? odd[k] : even[k]);
        const unsigned minus = (unsigned)(__popc((unsigned)(i & signs)) + __popc((unsigned)((i & signs) >> 32))) & 1;
        sum += minus ? 0 - term : term;
      }
      sum = sum_warp(sum);
      if (flags & EXPECT_NEGATIVE) sum = 0 - sum;
      if (lane == 0 && sum != 0) atomicAdd(sums + (first >> qubits) * count + s, sum);
    }
  }
}
