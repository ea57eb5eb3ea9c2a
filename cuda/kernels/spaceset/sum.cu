// space_sum adds the counts of each part of the bins; see spaceset.go. A warp adds the counts of a part.
extern "C" __global__ void __launch_bounds__(128)
space_sum(const unsigned *counts, unsigned bins, unsigned part, unsigned *sums) {
  const unsigned lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
  for (u64 w = (blockIdx.x * blockDim.x + threadIdx.x) / 32; w * part < bins; w += warps) {
    const u64 end = (w + 1) * part < bins ? (w + 1) * part : bins;
    unsigned sum = 0;
    for (u64 i = w * part + lane; i < end; i += 32) sum += counts[i];
    for (unsigned d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) sums[w] = sum;
  }
}
