// space_start turns the counts of bins into places in a sorted list; see spaceset.go. A warp has a part of the bins.
extern "C" __global__ void __launch_bounds__(128)
space_start(unsigned *counts, unsigned bins, unsigned part, const unsigned *sums, unsigned *starts) {
  const unsigned lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
  for (u64 w = (blockIdx.x * blockDim.x + threadIdx.x) / 32; w * part < bins; w += warps) {
    const u64 end = (w + 1) * part < bins ? (w + 1) * part : bins;
    unsigned before = 0; // in the bins before this lane's
    for (u64 i = lane; i < w; i += 32) before += sums[i];
    for (unsigned d = 16; d > 0; d /= 2) before += __shfl_xor_sync(0xffffffffu, before, d);
    for (u64 first = w * part; first < end; first += 32) {
      const u64 i = first + lane;
      const unsigned own = i < end ? counts[i] : 0;
      unsigned sum = own;
      for (unsigned d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_sync(0xffffffffu, sum, (int)(lane < d ? lane : lane - d));
        if (lane >= d) sum += other;
      }
      if (i < end) {
        starts[i] = before + sum - own;
        counts[i] = 0; // for the next step
      }
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (end == bins && lane == 0) starts[bins] = before;
  }
}
