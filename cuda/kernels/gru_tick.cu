// gru_tick_h8_f32 and its like, for 8, 16 and 32 units and state of float32 or bf16, step all agents of a swarm; see
// kernels.TickParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_tick
#endif

struct Dense {
  enum { SPAN = AGENT_SPAN };
  const Swarm &s;
  Unit unit;
  Shared *shared;
  float *h, *x; // rows of the warp
  uint4 next_h[AHEAD ? VECTORS : 1], next_x[AHEAD ? VECTORS : 1];

  __device__ __forceinline__ Dense(const Swarm &swarm, Shared *memory) : s(swarm), shared(memory) {
    h = (float *)memory->units[threadIdx.x / 32];
    x = (float *)memory->inputs[threadIdx.x / 32];
  }

  __device__ __forceinline__ u64 row(const Span &span, unsigned tile) const { return (u64)span.slot * s.agents + tile * 32; }

  // What the lane reads of the 32 agents of a tile; behind the last there is the last again.
  __device__ __forceinline__ const uint4 *from(unsigned var, const Span &span, unsigned tile, int k) const {
    const unsigned most = (span.groups * s.agents - tile * 32) * VECTORS - 1, v = threadIdx.x % 32 + 32 * k;
    return (const uint4 *)s.variable(span.page, var) + row(span, tile) * VECTORS + (v < most ? v : most);
  }

  __device__ __forceinline__ void fetch(const Span &span, unsigned tile) {
    if (tile * 32 >= span.groups * s.agents) return;
#pragma unroll
    for (int k = 0; k < (AHEAD ? VECTORS : 1); k++) {
      next_h[k] = __ldcs(from(AGENT_VAR_HIDDEN, span, tile, k));
      next_x[k] = __ldcs(from(AGENT_VAR_INPUT, span, tile, k));
    }
  }

  // Where the k-th of what a lane reads stands in the rows.
  __device__ __forceinline__ unsigned place(int k) const {
    const unsigned v = threadIdx.x % 32 + 32 * k;
    return v / VECTORS * ROW + v % VECTORS * ELEM::VALUES;
  }

  // Reads a tile into the rows of the warp, a few vectors at once.
  __device__ __forceinline__ void stage(unsigned var, float *rows, const Span &span, unsigned tile) const {
#pragma unroll
    for (int first = 0; first < VECTORS; first += 4) {
      uint4 v[4];
#pragma unroll
      for (int k = 0; k < 4; k++) v[k] = __ldcs(from(var, span, tile, first + k));
#pragma unroll
      for (int k = 0; k < 4; k++) ELEM::unpack(rows + place(first + k), v[k]);
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
      if (AHEAD) {
#pragma unroll
        for (int k = 0; k < (AHEAD ? VECTORS : 1); k++) {
          ELEM::unpack(h + place(k), next_h[k]);
          ELEM::unpack(x + place(k), next_x[k]);
        }
        const bool more = t + warps < tiles;
        Span from;
        from.page = more ? span.page : next.page;
        from.slot = more ? span.slot : next.slot;
        from.groups = more ? span.groups : next.groups;
        fetch(from, more ? t + warps : warp);
      } else {
        stage(AGENT_VAR_HIDDEN, h, span, t);
        stage(AGENT_VAR_INPUT, x, span, t);
      }
      __syncwarp(FULL);
      step_rows(unit, h, x);
      const unsigned left = agents - t * 32;
      uint4 *to_h = (uint4 *)s.variable(span.page, AGENT_VAR_HIDDEN) + row(span, t) * VECTORS + lane;
#pragma unroll
      for (int k = 0; k < VECTORS; k++)
        if (lane + 32 * k < left * VECTORS) __stcs(to_h + 32 * k, ELEM::pack(h + place(k)));
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
