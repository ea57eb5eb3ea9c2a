// leaky_tick steps all agents of a swarm of leaky integrators, four or eight a thread; see kernels.TickParams.
#include "leaky_agents.cuh"


struct DenseLeaky {
  enum { SPAN = AGENT_SPAN_LEAKY, TOLD_STEPS = 0 };
  const Swarm &s;
  Leaky cell;

  __device__ __forceinline__ DenseLeaky(const Swarm &swarm) : s(swarm), cell(swarm.params) {}
  __device__ __forceinline__ void open(const Span &) {}
  __device__ __forceinline__ void tell(const Span &, unsigned) const {}
  __device__ __forceinline__ bool adds() const { return false; }
  __device__ __forceinline__ void keep(const Span &, unsigned, unsigned, unsigned, bool) const {}

  __device__ __forceinline__ void spike(unsigned *counts, unsigned group) const {
    atomicAdd(&counts[2 * group + 1], 1u);
    atomicAdd(&counts[2 * group], 0xffffffffu);
  }

  template <bool MANY> __device__ __forceinline__ void step(const Span &span, const Span &, unsigned steps,
      unsigned *counts) {
    const unsigned A = s.agents, agents = span.groups * A;
    const u64 at = (u64)span.slot * A;
    float *potential = (float *)s.variable(span.frame, AGENT_VAR_POTENTIAL) + at,
        *trace = (float *)s.variable(span.frame, AGENT_VAR_TRACE) + at;
    const float2 *input = (const float2 *)s.variable(span.frame, AGENT_VAR_INPUT) + at;
    unsigned char *vote = s.variable(span.frame, AGENT_VAR_VOTE) + at;
    // All agents count as quiet. An agent that spikes is moved below.
    for (unsigned g = threadIdx.x; g < span.groups; g += blockDim.x) atomicAdd(&counts[2 * g], A);
    enum { QUADS = MANY ? 1 : 2 }; // that a thread has under way at once
    for (unsigned first = threadIdx.x; first < agents / 4; first += QUADS * blockDim.x) {
      float4 v[QUADS], u[QUADS], a[QUADS], b[QUADS];
#pragma unroll
      for (int k = 0; k < QUADS; k++) {
        const unsigned q = first + k * blockDim.x;
        if (q >= agents / 4) continue;
        v[k] = __ldcs((const float4 *)potential + q), u[k] = __ldcs((const float4 *)trace + q);
        a[k] = __ldcs((const float4 *)input + 2 * q), b[k] = __ldcs((const float4 *)input + 2 * q + 1);
      }
      bool spikes[QUADS][4];
      const auto all = [&] {
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
          if (first + k * blockDim.x >= agents / 4) continue;
          spikes[k][0] = cell.step(&v[k].x, &u[k].x, a[k].x, a[k].y);
          spikes[k][1] = cell.step(&v[k].y, &u[k].y, a[k].z, a[k].w);
          spikes[k][2] = cell.step(&v[k].z, &u[k].z, b[k].x, b[k].y);
          spikes[k][3] = cell.step(&v[k].w, &u[k].w, b[k].z, b[k].w);
        }
      };
      all();
      for (unsigned left = steps; MANY && left > 1; left--) all();
#pragma unroll
      for (int k = 0; k < QUADS; k++) {
        const unsigned q = first + k * blockDim.x;
        if (q >= agents / 4) continue;
        __stcs((float4 *)potential + q, v[k]);
        __stcs((float4 *)trace + q, u[k]);
        unsigned votes = 0x01010101u;
        if (spikes[k][0] | spikes[k][1] | spikes[k][2] | spikes[k][3]) {
          unsigned g = s.group(4 * q), left = (g + 1) * A - 4 * q;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            if (left == 0) left = A, g++;
            left--;
            votes += (unsigned)spikes[k][i] << 8 * i;
            if (spikes[k][i]) spike(counts, g);
          }
        }
        __stcs((unsigned *)vote + q, votes);
      }
    }
    for (unsigned i = agents / 4 * 4 + threadIdx.x; i < agents; i += blockDim.x) {
      const float2 x = input[i];
      bool spikes = false;
      for (unsigned left = steps; left > 0; left--) spikes = cell.step(&potential[i], &trace[i], x.x, x.y);
      vote[i] = (unsigned char)(1 + spikes);
      if (spikes) spike(counts, s.group(i));
    }
  }
};

extern "C" __global__ void __launch_bounds__(256, 3)
leaky_tick(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
           const unsigned *params, const float *weights, unsigned groups, unsigned first, unsigned count,
           unsigned steps, unsigned tally, unsigned char *decisions, unsigned long long *scratch, unsigned sequence,
           unsigned long long *result) {
  const Swarm swarm(pages, page_bytes, frames, layout, params, groups);
  DenseLeaky cell(swarm);
  const Part part = {first, count, steps, tally};
  tick(swarm, part, cell, decisions, scratch, sequence, result);
}
