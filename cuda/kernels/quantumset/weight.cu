// state_weight adds up the weights of amplitudes; see quantumset.go. A warp adds up a run. The sums are integers, so
// they do not depend on an order.
extern "C" __global__ void __launch_bounds__(256)
state_weight(const float *amplitudes, unsigned long long runs, unsigned group, unsigned long long mask,
             unsigned long long value, unsigned long long *sums, unsigned long long *totals) {
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (u64 run = (u64)blockIdx.x * warps + threadIdx.x / 32; run < runs; run += (u64)gridDim.x * warps) {
    const u64 first = run << RUN_QUBITS;
    u64 sum = 0;
    if (((first ^ value) & mask) >> RUN_QUBITS == 0) { // the bits above a run are the same for all of it
      const float4 *at = (const float4 *)amplitudes + first / 2;
#pragma unroll
      for (unsigned k = 0; k < RUN_SIZE / 64; k++) {
        const unsigned i = 32 * k + lane;
        const float4 v = at[i];
        if (((first + 2 * i ^ value) & mask) == 0) sum += weight_of(make_float2(v.x, v.y));
        if (((first + 2 * i + 1 ^ value) & mask) == 0) sum += weight_of(make_float2(v.z, v.w));
      }
    }
    sum = sum_warp(sum);
    if (lane == 0) {
      sums[run] = sum;
      if (sum > 0) atomicAdd(totals + (run >> group), sum);
    }
  }
}
