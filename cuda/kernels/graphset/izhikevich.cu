// graph_izhikevich makes a tick of a network of neurons of Izhikevich (2003); see graphset.go. A lane has four neurons.

// What neurons of a type have in common, in the order of types.
struct Type {
  float a, b, c, d, noise;

  __device__ __forceinline__ explicit Type(const float *t) : a(t[0]), b(t[1]), c(t[2]), d(t[3]), noise(t[4]) {}
};

// The potential after half a tick: v + (0.04 v^2 + 5 v + 140 - u + input) / 2, within bounds. Each operation rounds
// once.
__device__ __forceinline__ float half_tick(float v, float u, float input) {
  float slope = 0.04f * v;
  slope = slope + 5.0f;
  slope = slope * v;
  slope = slope + 140.0f;
  slope = slope - u;
  slope = slope + input;
  slope = 0.5f * slope;
  const float next = v + slope;
  return next < LOWEST ? LOWEST : (next > PEAK ? PEAK : next);
}

extern "C" __global__ void __launch_bounds__(128)
graph_izhikevich(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per,
                 unsigned agents, unsigned potentials, unsigned recoveries, unsigned currents, int *sums,
                 unsigned *active, unsigned *counts, unsigned which, const float *types, unsigned exciting,
                 unsigned noisy, unsigned tick, unsigned key0, unsigned key1, unsigned count,
                 unsigned long long *tally, unsigned marked, unsigned *bits, unsigned first_id) {
  const Type excitatory(types), inhibitory(types + 5);
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  unsigned spikes = 0, seen = 0;
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + threadIdx.x % 32 * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned draws[4] = {0x80000000u, 0x80000000u, 0x80000000u, 0x80000000u};
    if (noisy) {
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
        float *potential = (float *)(page + potentials) + at, *recovery = (float *)(page + recoveries) + at;
        const int sum = sums[id + k];
        if (sum != 0) sums[id + k] = 0;
        const Type &t = who < exciting ? excitatory : inhibitory;
        // Each operation rounds once. The draw is uniform in [-1, 1), in steps of 2^-23.
        const float drawn = (float)((int)(draws[k] >> 8) - (1 << 23)) * 1.1920928955078125e-7f;
        float input = ((const float *)(page + currents))[at];
        input = input + drawn * t.noise;
        input = input + (float)sum * 1.52587890625e-5f;
        float v = tick ? *potential : t.c, u = tick ? *recovery : t.b * t.c;
        v = half_tick(v, u, input);
        v = half_tick(v, u, input);
        float pull = t.b * v;
        pull = pull - u;
        pull = t.a * pull;
        u = u + pull;
        spike = v == PEAK;
        *potential = spike ? t.c : v;
        *recovery = spike ? u + t.d : u;
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
