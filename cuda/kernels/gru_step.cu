// gru_step_h8_f32 and its like step the agents addressed, each at most once in a launch; see kernels.StepParams.
#include "gru_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_step
#endif

#define TILE (16 * TILES)                // observations that a warp takes at once
// features that are read at once where rows of them begin at multiples of as many
#define VECTOR (PIECE == 2 ? 2 : 4)

// The piece of an observation's inputs.
__device__ __forceinline__ void read_inputs(float *to, const float *row, unsigned features) {
  const unsigned first = threadIdx.x % 4 * PIECE;
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
}

__device__ __forceinline__ u64 of_lane(u64 v, unsigned lane) {
  return (u64)__shfl_sync(FULL, (unsigned)(v >> 32), (int)lane) << 32 | __shfl_sync(FULL, (unsigned)v, (int)lane);
}

extern "C" __global__ void __launch_bounds__(GRU_BLOCK, GRU_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, const unsigned *table, unsigned groups, const unsigned *agents, const float *inputs,
            unsigned count, unsigned char *votes, unsigned long long *scratch, unsigned char *host,
            const unsigned *head) {
  __shared__ Shared shared;
  __shared__ Sparse block;
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const Net net(&shared, table, s.candidates);
  open_sparse(&block);
  const unsigned n = counted(count, head);
  const unsigned lane = threadIdx.x % 32, features = params[AGENT_FEATURES];
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  u64 first = ((u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * TILE;
  const unsigned mine = lane / 4 + lane % 4 * 8; // in a tile, where the lane owns one
  // Observations that are there have their agents read a tile ahead. To bring rows and votes nearer before they are
  // read (prefetch.global.L2) made it slower: 250 us for 1M of 100M agents and 207 without, 231 with rows alone (H200).
  const auto agent_of = [&](u64 i) { return OWNS && i < n ? __ldcs(agents + i) : 0; };
  const auto is_there = [&](u64 i) { return OWNS && i < n; };
  const auto row_of = [&](const Place &p) { return s.variable(p.page, AGENT_VAR_ROW) + (u64)p.at * ROW; };
  const auto vote_of = [&](const Place &p) { return s.variable(p.page, AGENT_VAR_VOTE) + p.at; };
  unsigned next = agent_of(first + mine);
  for (; first < n; first += warps * TILE) {
    const u64 own = first + mine;
    const unsigned agent = next;
    next = agent_of(own + warps * TILE);
    bool goes = is_there(own) && agent / s.agents < s.groups;
    if (is_there(own) && !goes) atomicAdd(&block.outside, 1u);
    Place at = {0, 0, 0};
    u64 row = 0; // address of the agent, 0: there is none
    unsigned old = 0;
    if (goes) {
      at = place(s, agent);
      row = (u64)row_of(at);
      old = *vote_of(at);
    }
    float h[ROWS][PIECE], x[ROWS][PIECE];
    unsigned words[ROWS][WORDS];
    unsigned char *piece[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int k = 0; k < WORDS; k++) words[r][k] = 0;
#pragma unroll
      for (int k = 0; k < PIECE; k++) x[r][k] = 0.0f;
      const u64 from = of_lane(row, (lane & ~3u) + r);
      piece[r] = from ? (unsigned char *)from + lane % 4 * (4 * WORDS) : 0;
      if (!from) continue;
      Piece::load(words[r], piece[r]);
      read_inputs(x[r], inputs + (first + lane / 4 + 8 * r) * features, features);
    }
    bool refused = false; // the observation of the lane's own agent
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      bool odd = false;
#pragma unroll
      for (int k = 0; k < PIECE; k++) x[r][k] = held(x[r][k], AGENT_GRU_INPUT, &odd);
      ELEM::unpack(h[r], words[r], PIECE);
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
      ELEM::pack(words[r], x[r], PIECE);
      if (piece[r]) Piece::store(piece[r] + HALF, words[r]);
    }
    Bytes a[ROWS][ALL];
    unsigned halves[ROWS];
    Net::hold(a, halves, x);
    Net::numbers(a, halves, h);
    net.step(h, a);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      ELEM::pack(words[r], h[r], PIECE);
      if (piece[r]) Piece::store(piece[r], words[r]);
    }
    const unsigned best = net.elected(h);
    if (is_there(own)) votes[own] = (unsigned char)(goes ? best : AGENT_NO_VOTE);
    if (goes) {
      revote(s, &block, at, vote_of(at), old, best);
      atomicAdd(&block.stepped, 1u);
    }
    __syncwarp(FULL);
  }
  close_sparse(s, &block, scratch);
}
