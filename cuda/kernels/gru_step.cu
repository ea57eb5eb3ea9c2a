// gru_step_h8_f32 and its like step the agents addressed, each at most once in a launch; see kernels.StepParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_step
#endif

// One observation on its way to its agent, in the lane that it belongs to.
struct Gathered {
  Place at;
  bool there, odd, goes; // there is one; its input is not finite; it goes to its agent
  uint4 h[VECTORS];
  float x[HIDDEN];
  unsigned old; // the agent's vote

  __device__ __forceinline__ void gather(const Swarm &s, const unsigned *agents, const float *inputs, unsigned n, u64 tile, Sparse *block) {
    const u64 i = tile * 32 + threadIdx.x % 32;
    const unsigned I = s.params[AGENT_FEATURES];
    there = i < n;
    odd = false;
    const unsigned agent = there ? agents[i] : 0;
    goes = there && agent / s.agents < s.groups;
    if (there && !goes) atomicAdd(&block->outside, 1u);
    old = 0;
#pragma unroll
    for (int k = 0; k < HIDDEN; k++) x[k] = 0.0f;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) h[k] = make_uint4(0, 0, 0, 0);
    if (!goes) return;
    at = place(s, agent);
    const uint4 *from = (const uint4 *)s.variable(at.page, AGENT_VAR_HIDDEN) + (u64)at.at * VECTORS;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) h[k] = from[k];
    old = s.variable(at.page, AGENT_VAR_VOTE)[at.at];
    const float *row = inputs + i * I;
    if (I % 4 == 0) {
#pragma unroll
      for (int k = 0; k < HIDDEN; k += 4)
        if (k < I) {
          const float4 v = __ldcs((const float4 *)(row + k));
          x[k] = v.x, x[k + 1] = v.y, x[k + 2] = v.z, x[k + 3] = v.w;
        }
    } else {
#pragma unroll
      for (int k = 0; k < HIDDEN; k++)
        if (k < I) x[k] = row[k];
    }
#pragma unroll
    for (int k = 0; k < HIDDEN; k++) x[k] = ELEM::round(held(x[k], &odd));
    if (!odd) return;
    goes = false;
    atomicAdd(&block->refused, 1u);
#pragma unroll
    for (int k = 0; k < HIDDEN; k++) x[k] = 0.0f;
  }
};

extern "C" __global__ void __launch_bounds__(GRU_BLOCK, GRU_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params, const float *weights,
            unsigned groups, const unsigned *agents, const float *inputs, unsigned n, unsigned char *votes, unsigned long long *scratch) {
  __shared__ Shared shared;
  __shared__ Sparse block;
  const Swarm s(pages, page_bytes, layout, params, groups);
  Unit unit;
  unit.load(weights, threadIdx.x % HIDDEN);
  load_readout(&shared, weights, s.candidates);
  open_sparse(&block);
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float *h = (float *)shared.units[threadIdx.x / 32] + lane * ROW, *x = (float *)shared.inputs[threadIdx.x / 32] + lane * ROW;
  const u64 tiles = ((u64)n + 31) / 32;
  for (u64 t = (u64)blockIdx.x * warps + threadIdx.x / 32; t < tiles; t += (u64)gridDim.x * warps) {
    Gathered g;
    g.gather(s, agents, inputs, n, t, &block);
#pragma unroll
    for (int k = 0; k < VECTORS; k++) ELEM::unpack(h + k * ELEM::VALUES, g.h[k]);
#pragma unroll
    for (int k = 0; k < HIDDEN; k += 4) *(float4 *)(x + k) = make_float4(g.x[k], g.x[k + 1], g.x[k + 2], g.x[k + 3]);
    uint4 *keep = 0;
    if (g.goes) {
      keep = (uint4 *)s.variable(g.at.page, AGENT_VAR_HIDDEN) + (u64)g.at.at * VECTORS;
      uint4 *to = (uint4 *)s.variable(g.at.page, AGENT_VAR_INPUT) + (u64)g.at.at * VECTORS;
#pragma unroll
      for (int k = 0; k < VECTORS; k++) __stcs(to + k, ELEM::pack(x + k * ELEM::VALUES));
    }
    __syncwarp(FULL);
    step_rows(unit, h - lane * ROW, x - lane * ROW);
    if (g.goes) {
#pragma unroll
      for (int k = 0; k < VECTORS; k++) __stcs(keep + k, ELEM::pack(h + k * ELEM::VALUES));
      const unsigned best = elected((const float *)shared.readout, h, s.candidates);
      votes[t * 32 + lane] = (unsigned char)best;
      revote(s, &block, g.at, s.variable(g.at.page, AGENT_VAR_VOTE) + g.at.at, g.old, best);
      atomicAdd(&block.stepped, 1u);
    } else if (g.there) {
      votes[t * 32 + lane] = AGENT_NO_VOTE;
    }
    __syncwarp(FULL);
  }
  close_sparse(s, &block, scratch);
}
