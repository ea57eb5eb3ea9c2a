// leaky_tick steps all agents of a swarm of leaky integrators, four a thread; see kernels.TickParams.
#include "leaky_agents.cuh"

struct DenseLeaky {
  enum { SPAN = AGENT_SPAN_LEAKY };
  const Swarm &s;
  Leaky cell;

  __device__ __forceinline__ DenseLeaky(const Swarm &swarm) : s(swarm), cell(swarm.params) {}
  __device__ __forceinline__ void open(const Span &) {}

  __device__ __forceinline__ void spike(unsigned *counts, unsigned group) const {
    atomicAdd(&counts[2 * group + 1], 1u);
    atomicAdd(&counts[2 * group], 0xffffffffu);
  }

  __device__ __forceinline__ void step(const Span &span, const Span &, unsigned *counts) {
    const unsigned A = s.agents, agents = span.groups * A;
    const u64 at = (u64)span.slot * A;
    float *potential = (float *)s.variable(span.frame, AGENT_VAR_POTENTIAL) + at, *trace = (float *)s.variable(span.frame, AGENT_VAR_TRACE) + at;
    const float2 *input = (const float2 *)s.variable(span.frame, AGENT_VAR_INPUT) + at;
    unsigned char *vote = s.variable(span.frame, AGENT_VAR_VOTE) + at;
    // All are quiet but for those that spike.
    for (unsigned g = threadIdx.x; g < span.groups; g += blockDim.x) atomicAdd(&counts[2 * g], A);
    for (unsigned q = threadIdx.x; q < agents / 4; q += blockDim.x) {
      float4 v = __ldcs((const float4 *)potential + q), u = __ldcs((const float4 *)trace + q);
      const float4 a = __ldcs((const float4 *)input + 2 * q), b = __ldcs((const float4 *)input + 2 * q + 1);
      const bool spikes[4] = {cell.step(&v.x, &u.x, a.x, a.y), cell.step(&v.y, &u.y, a.z, a.w), cell.step(&v.z, &u.z, b.x, b.y), cell.step(&v.w, &u.w, b.z, b.w)};
      __stcs((float4 *)potential + q, v);
      __stcs((float4 *)trace + q, u);
      unsigned g = s.group(4 * q), left = (g + 1) * A - 4 * q, votes = 0x01010101u;
#pragma unroll
      for (int k = 0; k < 4; k++) {
        if (left == 0) left = A, g++;
        left--;
        votes += (unsigned)spikes[k] << 8 * k;
        if (spikes[k]) spike(counts, g);
      }
      __stcs((unsigned *)vote + q, votes);
    }
    for (unsigned i = agents / 4 * 4 + threadIdx.x; i < agents; i += blockDim.x) {
      const float2 x = input[i];
      const bool spikes = cell.step(&potential[i], &trace[i], x.x, x.y);
      vote[i] = (unsigned char)(1 + spikes);
      if (spikes) spike(counts, s.group(i));
    }
  }
};

extern "C" __global__ void __launch_bounds__(256)
leaky_tick(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout, const unsigned *params,
           const float *weights, unsigned groups, unsigned first, unsigned count, unsigned tally, unsigned char *decisions,
           unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  const Swarm swarm(pages, page_bytes, frames, layout, params, groups);
  DenseLeaky cell(swarm);
  const Part part = {first, count, tally};
  tick(swarm, part, cell, decisions, scratch, sequence, result);
}
