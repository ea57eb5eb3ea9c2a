// gru_tick_h8_f32 and its like, for 8, 16 and 32 units and state of float32 or bf16, step all agents of a swarm; see
// kernels.TickParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_tick
#endif

struct Dense {
  const Swarm &s;
  Unit unit;
  Shared *shared;
  float *h, *x; // rows of the warp
  uint4 next_h[VECTORS], next_x[VECTORS];

  __device__ __forceinline__ Dense(const Swarm &swarm, Shared *memory) : s(swarm), shared(memory) {
    h = (float *)memory->units[threadIdx.x / 32];
    x = (float *)memory->inputs[threadIdx.x / 32];
  }

  __device__ __forceinline__ u64 row(const Span &span, unsigned tile) const { return (u64)span.slot * s.agents + tile * 32; }

  // Reads the 32 agents of a tile; behind the last there is the last again.
  __device__ __forceinline__ void fetch(const Span &span, unsigned tile) {
    const unsigned agents = span.groups * s.agents, lane = threadIdx.x % 32;
    if (tile * 32 >= agents) return;
    const unsigned most = (agents - tile * 32) * VECTORS - 1;
    const u64 at = row(span, tile) * VECTORS;
    const uint4 *from_h = (const uint4 *)s.variable(span.page, AGENT_VAR_HIDDEN) + at, *from_x = (const uint4 *)s.variable(span.page, AGENT_VAR_INPUT) + at;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
      const unsigned v = lane + 32 * k < most ? lane + 32 * k : most;
      next_h[k] = __ldcs(from_h + v);
      next_x[k] = __ldcs(from_x + v);
    }
  }

  __device__ __forceinline__ void open(const Span &first) {
    if (AHEAD) fetch(first, threadIdx.x / 32);
  }

  __device__ __forceinline__ void step(const Span &span, const Span &next, unsigned *counts) {
    const unsigned agents = span.groups * s.agents, tiles = (agents + 31) / 32;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (AHEAD && warp >= tiles) fetch(next, warp);
    for (unsigned t = warp; t < tiles; t += warps) {
      if (!AHEAD) fetch(span, t);
#pragma unroll
      for (int k = 0; k < VECTORS; k++) {
        const unsigned v = lane + 32 * k, to = v / VECTORS * ROW + v % VECTORS * ELEM::VALUES;
        ELEM::unpack(h + to, next_h[k]);
        ELEM::unpack(x + to, next_x[k]);
      }
      if (AHEAD) {
        const bool more = t + warps < tiles;
        Span from;
        from.page = more ? span.page : next.page;
        from.slot = more ? span.slot : next.slot;
        from.groups = more ? span.groups : next.groups;
        fetch(from, more ? t + warps : warp);
      }
      __syncwarp(FULL);
      step_rows(unit, h, x);
      const unsigned left = agents - t * 32;
      uint4 *to_h = (uint4 *)s.variable(span.page, AGENT_VAR_HIDDEN) + row(span, t) * VECTORS;
#pragma unroll
      for (int k = 0; k < VECTORS; k++) {
        const unsigned v = lane + 32 * k;
        if (v < left * VECTORS) __stcs(to_h + v, ELEM::pack(h + v / VECTORS * ROW + v % VECTORS * ELEM::VALUES));
      }
      if (lane < left) {
        const unsigned best = elected((const float *)shared->readout, h + lane * ROW, s.candidates);
        s.variable(span.page, AGENT_VAR_VOTE)[row(span, t) + lane] = (unsigned char)(best + 1);
        atomicAdd(&counts[s.group(t * 32 + lane) * s.candidates + best], 1u);
      }
      __syncwarp(FULL);
    }
  }
};

extern "C" __global__ void __launch_bounds__(GRU_BLOCK, GRU_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params, const float *weights,
            unsigned groups, unsigned char *decisions, unsigned long long *scratch, unsigned sequence, unsigned long long *result) {
  __shared__ Shared shared;
  const Swarm swarm(pages, page_bytes, layout, params, groups);
  Dense cell(swarm, &shared);
  cell.unit.load(weights, threadIdx.x % HIDDEN);
  load_readout(&shared, weights, swarm.candidates);
  tick(swarm, cell, decisions, scratch, sequence, result);
}
