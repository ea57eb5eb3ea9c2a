// graph_lif makes a tick of a network of leaky integrate-and-fire neurons; see graphset.go. A lane has four neurons.
extern "C" __global__ void __launch_bounds__(128)
graph_lif(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
          unsigned resting, unsigned potentials, unsigned currents, int *sums, unsigned *active, unsigned *counts,
          unsigned which, float decay, float threshold, unsigned refractory, float noise, unsigned tick, unsigned key0,
          unsigned key1, unsigned count, unsigned long long *tally, unsigned marked, unsigned *bits,
          unsigned first_id) {
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  unsigned spikes = 0, seen = 0;
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + threadIdx.x % 32 * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned draws[4] = {0x80000000u, 0x80000000u, 0x80000000u, 0x80000000u};
    if (noise != 0.0f) {
      const Words block(key0, key1, 0, (unsigned)(id / 4) + first_id / 4, tick, 0);
      for (unsigned k = 0; k < 4; k++) draws[k] = block.w[k];
    }
    unsigned four = 0; // bit k: neuron k of the lane spikes
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
      const unsigned who = first_id + (unsigned)id + k;
      bool spike = false;
      if (k < n) {
        unsigned char *page = pages + frames[who / per] * page_bytes;
        const unsigned at = who % per;
        unsigned char *rest = page + resting + at;
        float *potential = (float *)(page + potentials) + at;
        const float current = ((const float *)(page + currents))[at];
        const int sum = sums[id + k];
        if (sum != 0) sums[id + k] = 0;
        const unsigned char left = *rest;
        if (left > 0) {
          *rest = left - 1;
        } else {
          // Each operation rounds once. The draw is uniform in [-1, 1), in steps of 2^-23.
          const float drawn = (float)((int)(draws[k] >> 8) - (1 << 23)) * 1.1920928955078125e-7f;
          float v = *potential * decay;
          v = v + current;
          v = v + drawn * noise;
          v = v + (float)sum * 1.52587890625e-5f;
          spike = v >= threshold;
          *potential = spike ? 0.0f : v;
          if (spike) *rest = (unsigned char)refractory;
        }
        if (page[at] != (unsigned char)spike) page[at] = (unsigned char)spike;
        spikes += spike;
        seen++;
      }
      four |= (unsigned)spike << k;
      if (!marked) append(active, counts + which, who, spike);
    }
    if (marked) write_bits(bits, w, four, agents);
  }
  if (count) {
    add_warp(seen - spikes, tally);
    add_warp(spikes, tally + 1);
  }
}
