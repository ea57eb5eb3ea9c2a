// agent_learn merges values into the copies of knowledge nodes that groups have, so that the agents hear them in the
// next tick; see kernels.AgentLearnArgs.
#include "agents.cuh"

extern "C" __global__ void agent_learn(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames,
                                       const unsigned *layout, const unsigned *params, unsigned groups,
                                       const unsigned *runs, unsigned n, const float *values, unsigned width,
                                       unsigned merge, unsigned rate, unsigned replace, unsigned char *host) {
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const unsigned *offsets = layout + 2;
  for (unsigned i = blockIdx.x; i < n; i += gridDim.x) {
    const unsigned *run = runs + 4 * (u64)i;
    unsigned char *page = s.at(s.frames[run[0]]);
    const float *from = values + (u64)run[3] * width;
    for (unsigned slot = run[1] + threadIdx.x; slot < run[1] + run[2]; slot += blockDim.x) {
      float *node = (float *)(page + offsets[AGENT_VAR_KNOWLEDGE]) + (u64)slot * width;
      u64 *updates = (u64 *)(page + offsets[AGENT_VAR_UPDATES]) + slot;
      for (unsigned k = 0; k < width; k++) {
        const float old = node[k], v = from[k];
        if (replace || *updates == 0)
          node[k] = v;
        else if (merge == AGENT_MERGE_MAX)
          node[k] = v > old ? v : old;
        else
          node[k] = fma32(merge == AGENT_MERGE_EMA ? __uint_as_float(rate) : 0.5f, v - old, old);
      }
      *updates += 1;
      ((u64 *)(page + offsets[AGENT_VAR_UPDATED]))[slot] = *s.round(page, slot);
      page[offsets[AGENT_VAR_LEARNED] + slot] = 1;
    }
  }
}
