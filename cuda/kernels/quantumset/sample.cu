// state_sample draws shots; see quantumset.go. A warp draws a shot: it finds the group of runs in the running totals of
// the row, then the run in the group, and then the amplitude in the run.

// Takes target down to the place at which a running sum over a warp passes it, and returns the lane. sum is the part of
// this lane. One lane has the place, because the sum of all parts is more than target.
__device__ __forceinline__ unsigned find_lane(u64 sum, u64 *target) {
  const unsigned lane = threadIdx.x % 32;
  u64 upto = sum;
  for (unsigned d = 1; d < 32; d *= 2) {
    const u64 before = __shfl_sync(0xffffffffu, upto, (int)(lane >= d ? lane - d : lane));
    if (lane >= d) upto += before;
  }
  const unsigned at = (unsigned)__ffs((int)__ballot_sync(0xffffffffu, upto > *target)) - 1;
  *target -= __shfl_sync(0xffffffffu, upto - sum, (int)at);
  return at;
}

extern "C" __global__ void __launch_bounds__(256)
state_sample(const float *amplitudes, unsigned qubits, unsigned group, const unsigned long long *sums,
             const unsigned long long *totals, unsigned long long rows, unsigned shots, unsigned long long seed,
             unsigned first, const unsigned *places, unsigned long long *samples) {
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32, runs = 1u << group;
  const u64 groups = 1ull << (qubits - RUN_QUBITS - group), all = rows * shots;
  for (u64 s = (u64)blockIdx.x * warps + threadIdx.x / 32; s < all; s += (u64)gridDim.x * warps) {
    const u64 row = s / shots;
    const unsigned shot = (unsigned)(s - row * shots), key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32);
    const u64 *upto = totals + row * groups;
    const u64 random = (u64)philox(key0, key1, 1, shot, first + (unsigned)row, 0) << 32 |
                       philox(key0, key1, 0, shot, first + (unsigned)row, 0);
    u64 target = __umul64hi(random, upto[groups - 1]);
    u64 g = 0; // the first group whose running total is more than target
    for (u64 step = groups / 2; step > 0; step /= 2)
      if (upto[g + step - 1] <= target) g += step;
    if (g > 0) target -= upto[g - 1];
    // A lane has consecutive runs of the group, and then consecutive amplitudes of the run.
    const unsigned each = runs >= 32 ? runs / 32 : 1;
    const u64 *run = sums + (row * groups + g) * runs + lane * each;
    u64 sum = 0;
    if (lane * each < runs)
      for (unsigned k = 0; k < each; k++) sum += run[k];
    const unsigned taker = find_lane(sum, &target);
    unsigned r = taker * each;
    run += (int)(taker - lane) * (int)each;
    for (; target >= *run; run++, r++) target -= *run;
    const u64 at = ((g << group) + r) << RUN_QUBITS;
    const float2 *a = (const float2 *)amplitudes + (row << qubits) + at + lane * (RUN_SIZE / 32);
    sum = 0;
#pragma unroll
    for (unsigned k = 0; k < RUN_SIZE / 32; k++) sum += weight_of(a[k]);
    const unsigned place = find_lane(sum, &target);
    a += (int)(place - lane) * (int)(RUN_SIZE / 32);
    u64 index = at + place * (RUN_SIZE / 32);
    for (u64 w; target >= (w = weight_of(*a)); a++, index++) target -= w;
    u64 bits = 0;
    for (unsigned q = lane; q < qubits; q += 32)
      if (places[q] != NO_PLACE && index >> q & 1) bits |= 1ull << places[q];
    // No two qubits have one place, so the sum is the bits of all.
    bits = sum_warp(bits);
    if (lane == 0) samples[s] = bits;
  }
}
