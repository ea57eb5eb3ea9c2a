// gru_step_h8_f32 and its like step the agents addressed, each at most once in a launch; see kernels.StepParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_step
#endif

#define SOME (HIDDEN == 32 ? 8 : HIDDEN) // elements of a row that are under way at once

// An observation and where its agent is, in the lane that it belongs to.
struct Observation {
  Place at;
  bool there, goes; // there is one; it goes to its agent
  unsigned old;     // the agent's vote

  // Reads the agent's units and the inputs into the rows h and x. Of one that does not go anywhere they may hold anything.
  __device__ __forceinline__ void gather(const Swarm &s, const unsigned *agents, const float *inputs, unsigned n, u64 i, float *h, float *x, Sparse *block) {
    const unsigned I = s.params[AGENT_FEATURES];
    there = i < n;
    const unsigned agent = there ? agents[i] : 0;
    goes = there && agent / s.agents < s.groups;
    if (there && !goes) atomicAdd(&block->outside, 1u);
    if (!goes) return;
    at = place(s, agent);
    old = s.variable(at.page, AGENT_VAR_VOTE)[at.at];
    const uint4 *from = (const uint4 *)s.variable(at.page, AGENT_VAR_HIDDEN) + (u64)at.at * VECTORS;
    const float *row = inputs + i * I;
    bool odd = false;
#pragma unroll
    for (int first = 0; first < HIDDEN; first += SOME) {
      float v[SOME];
      uint4 u[SOME / ELEM::VALUES];
#pragma unroll
      for (int k = 0; k < SOME / ELEM::VALUES; k++) u[k] = from[first / ELEM::VALUES + k];
#pragma unroll
      for (int k = 0; k < SOME; k += 4) {
        float4 f = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (I % 4 == 0) {
          if (first + k < I) f = __ldcs((const float4 *)(row + first + k));
        } else {
          if (first + k < I) f.x = row[first + k];
          if (first + k + 1 < I) f.y = row[first + k + 1];
          if (first + k + 2 < I) f.z = row[first + k + 2];
          if (first + k + 3 < I) f.w = row[first + k + 3];
        }
        v[k] = f.x, v[k + 1] = f.y, v[k + 2] = f.z, v[k + 3] = f.w;
      }
#pragma unroll
      for (int k = 0; k < SOME / ELEM::VALUES; k++) ELEM::unpack(h + first + k * ELEM::VALUES, u[k]);
#pragma unroll
      for (int k = 0; k < SOME; k++) v[k] = ELEM::round(held(v[k], &odd));
#pragma unroll
      for (int k = 0; k < SOME; k += 4) *(float4 *)(x + first + k) = make_float4(v[k], v[k + 1], v[k + 2], v[k + 3]);
    }
    if (!odd) return;
    goes = false;
    atomicAdd(&block->refused, 1u);
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
    Observation g;
    g.gather(s, agents, inputs, n, t * 32 + lane, h, x, &block);
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
