// gru_step_h8_f32 and its like step the agents addressed, each at most once in a launch; see kernels.StepParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_step
#endif

#define TILE (16 * TILES)                // observations that a warp takes at once
#define VECTOR (PIECE == 2 ? 2 : 4)      // features that are read at once where rows of them begin at multiples of as many

// The piece of an observation's inputs, as held; true: one of them is not finite.
__device__ __forceinline__ bool read_inputs(float *to, const float *row, unsigned features) {
  const unsigned first = threadIdx.x % 4 * PIECE;
  bool odd = false;
#pragma unroll
  for (int k = 0; k < PIECE; k++) to[k] = 0.0f;
  if (features % VECTOR == 0) {
#pragma unroll
    for (int k = 0; k < PIECE; k += VECTOR) {
      if (first + k >= features) continue;
      unsigned v[VECTOR];
      Words<VECTOR>::load(v, (const unsigned char *)(row + first + k));
      F32::unpack(to + k, v, VECTOR);
    }
  } else {
#pragma unroll
    for (int k = 0; k < PIECE; k++)
      if (first + k < features) to[k] = row[first + k];
  }
#pragma unroll
  for (int k = 0; k < PIECE; k++) to[k] = held(to[k], AGENT_GRU_INPUT, &odd);
  return odd;
}

__device__ __forceinline__ u64 of_lane(u64 v, unsigned lane) {
  return (u64)__shfl_sync(FULL, (unsigned)(v >> 32), (int)lane) << 32 | __shfl_sync(FULL, (unsigned)v, (int)lane);
}

extern "C" __global__ void __launch_bounds__(GRU_BLOCK, GRU_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params, const unsigned *table,
            unsigned groups, const unsigned *agents, const float *inputs, unsigned n, unsigned char *votes, unsigned long long *scratch) {
  __shared__ Shared shared;
  __shared__ Sparse block;
  const Swarm s(pages, page_bytes, layout, params, groups);
  const Net net(&shared, table, s.candidates);
  open_sparse(&block);
  const unsigned lane = threadIdx.x % 32, features = params[AGENT_FEATURES];
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  u64 first = ((u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * TILE;
  const unsigned mine = lane / 4 + lane % 4 * 8; // in a tile, where the lane owns one
  unsigned next = OWNS && first + mine < n ? __ldcs(agents + first + mine) : 0;
  for (; first < n; first += warps * TILE) {
    const u64 own = first + mine;
    const unsigned agent = next;
    const bool there = OWNS && own < n;
    bool goes = there && agent / s.agents < s.groups;
    if (there && !goes) atomicAdd(&block.outside, 1u);
    Place at = {0, 0, 0};
    u64 row = 0; // address of the agent, 0: there is none
    unsigned old = 0;
    if (goes) {
      at = place(s, agent);
      row = (u64)(s.variable(at.page, AGENT_VAR_ROW) + (u64)at.at * ROW);
      old = s.variable(at.page, AGENT_VAR_VOTE)[at.at];
    }
    const u64 later = own + warps * TILE;
    if (OWNS && later < n) next = __ldcs(agents + later);
    float h[ROWS][PIECE], x[ROWS][PIECE];
    unsigned char *piece[ROWS];
    bool refused = false; // that of this lane
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const u64 from = of_lane(row, (lane & ~3u) + r);
      piece[r] = from ? (unsigned char *)from + lane % 4 * (4 * WORDS) : 0;
      unsigned words[WORDS];
#pragma unroll
      for (int k = 0; k < WORDS; k++) words[k] = 0;
#pragma unroll
      for (int k = 0; k < PIECE; k++) x[r][k] = 0.0f;
      bool odd = false;
      if (from) {
        Piece::load(words, piece[r]);
        odd = read_inputs(x[r], inputs + (first + lane / 4 + 8 * r) * features, features);
      }
      ELEM::unpack(h[r], words, PIECE);
      const bool any = (__ballot_sync(FULL, odd) >> (lane & ~3u) & 15u) != 0;
      if (any) piece[r] = 0;
      if (any && lane % 4 == r) refused = true;
    }
    if (refused) {
      goes = false;
      atomicAdd(&block.refused, 1u);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      unsigned words[WORDS];
      ELEM::pack(words, x[r], PIECE);
      if (piece[r]) Piece::store(piece[r] + HALF, words);
    }
    net.step(h, x);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      unsigned words[WORDS];
      ELEM::pack(words, h[r], PIECE);
      if (piece[r]) Piece::store(piece[r], words);
    }
    const unsigned best = net.elected(h);
    if (there) votes[own] = (unsigned char)(goes ? best : AGENT_NO_VOTE);
    if (!goes) continue;
    revote(s, &block, at, s.variable(at.page, AGENT_VAR_VOTE) + at.at, old, best);
    atomicAdd(&block.stepped, 1u);
  }
  close_sparse(s, &block, scratch);
}
