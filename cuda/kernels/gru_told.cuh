// What the agents of a gru hear of their group in a tick: its decision, and its knowledge node. A block makes the nodes
// of the groups of a span before it steps their agents. The agents read the node from shared memory; what they hold in
// memory does not change. See kernels.ToldParams. Sums are of integers, exact in any order.
//
// The sums need the units of a group before its first agent steps, so a tick reads them twice. Small groups are in the
// cache the second time. Of large ones the tick adds up the units while it has stepped them, and keeps the sums for the
// next tick.
#pragma once

#include "gru_agents.cuh"

#define MOST AGENT_MOST_NODE
#define UNIT ((int)AGENT_UNIT_SCALE) // a unit of 1 as an integer
// Agents of a group from which on all warps of a block add up one group at a time. Groups of fewer have a warp each, or
// a part of one.
#define WHOLE_BLOCK 257

// What a block shares of the groups of a span.
struct Heard {
  int sums[AGENT_SPAN_GROUPS][MOST + 1]; // of the units, or the largest of each; behind them the number of agents
  int next[MOST + 1];                    // of the group of a large span behind its step; behind them whether one is odd
  float inputs[AGENT_SPAN_GROUPS][HIDDEN];
};

struct Told {
  Heard *heard;
  unsigned decision, node, width, merge; // inputs are counted from 1 on; 0: it is not heard
  float rate;
  int *kept;                   // by group: the sums for the next tick; behind them the number of agents, -1: none
  bool fresh;                  // kept is of the present state
  bool keeps;                  // groups are large: a span has one, whose sums are kept
  unsigned knowledge, updates; // offsets in a page
  unsigned mask;               // bit k: input k of the lane's piece is heard

  // All threads of a block open it, and meet before the first span.
  __device__ __forceinline__ Told(Heard *to, const unsigned *layout, unsigned d, unsigned first, unsigned units,
      unsigned how, float r, int *sums, bool are_fresh)
      : heard(to), decision(d), node(first), width(units), merge(how), rate(r), kept(sums), fresh(are_fresh),
          keeps(first && layout[0] >= AGENT_SPAN && layout[0] % 4 == 0), knowledge(0), updates(0), mask(0) {
    if (node) knowledge = layout[2 + AGENT_VAR_KNOWLEDGE], updates = layout[2 + AGENT_VAR_UPDATES];
    for (int k = 0; k < PIECE; k++) {
      const unsigned input = threadIdx.x % 4 * PIECE + k + 1;
      if (input == decision || (node && input >= node && input < node + width)) mask |= 1u << k;
    }
    for (unsigned g = threadIdx.x; g < AGENT_SPAN_GROUPS; g += blockDim.x) clear(heard->sums[g]);
    if (threadIdx.x == 0) clear(heard->next);
  }

  __device__ __forceinline__ int nothing() const { return merge == AGENT_MERGE_MAX ? -UNIT : 0; }

  __device__ __forceinline__ void clear(int *sums) const {
    for (int k = 0; k < MOST; k++) sums[k] = nothing();
    sums[MOST] = 0;
  }

  __device__ __forceinline__ void merge_into(int *sum, int v) const {
    if (merge == AGENT_MERGE_MAX)
      atomicMax(sum, v);
    else
      atomicAdd(sum, v);
  }

  __device__ __forceinline__ int merged(int a, int b) const {
    return merge == AGENT_MERGE_MAX ? (a > b ? a : b) : a + b;
  }

  // The integer of a unit, rounded to nearest: the last bits of a float32 that is 1.5 * 2^23 and more are an integer.
  static __device__ __forceinline__ int number_of(float v) {
    v = v > 1.0f ? 1.0f : (v < -1.0f ? -1.0f : v);
    return (int)(__float_as_uint(fma32(v, (float)UNIT, 12582912.0f)) - 0x4b400000u);
  }

  // Adds an agent to all, and returns 1 if it counts: it has stepped, and its units are finite.
  __device__ __forceinline__ unsigned add(int *all, const unsigned char *row, unsigned char vote) const {
    unsigned words[MOST * ELEM::BYTES / 4];
#pragma unroll
    for (int k = 0; k < MOST * ELEM::BYTES / 4; k += 4) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if ((unsigned)(k * 4) < width * ELEM::BYTES) v = *(const uint4 *)(row + 4 * k);
      words[k] = v.x, words[k + 1] = v.y, words[k + 2] = v.z, words[k + 3] = v.w;
    }
    float v[MOST];
    ELEM::unpack(v, words, MOST);
    bool counts = vote != 0;
#pragma unroll
    for (int k = 0; k < MOST; k++)
      if ((unsigned)k < width) counts = counts && (__float_as_uint(v[k]) & 0x7f800000u) != 0x7f800000u;
#pragma unroll
    for (int k = 0; k < MOST; k++)
      all[k] = merged(all[k], counts ? number_of(v[k]) : nothing());
    return counts;
  }

  // Adds up the groups of a span.
  __device__ __forceinline__ void add(const Swarm &s, const Span &span) const {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool whole = s.agents >= WHOLE_BLOCK;
    unsigned team = 1; // lanes of a group, each of which has four of its agents or more
    while (team < 32 && 4 * team < s.agents) team *= 2;
    const unsigned own = whole ? 0 : warp * (32 / team) + lane / team;
    const unsigned each = whole ? 1 : blockDim.x / team, from = whole ? threadIdx.x : lane % team;
    const unsigned stride = whole ? blockDim.x : team;
    const unsigned char *rows = s.variable(span.frame, AGENT_VAR_ROW) + (u64)span.slot * s.agents * ROW;
    const unsigned char *votes = s.variable(span.frame, AGENT_VAR_VOTE) + (u64)span.slot * s.agents;
    for (unsigned first = 0; first < span.groups; first += each) {
      const unsigned g = first + own;
      int all[MOST];
      unsigned n = 0;
#pragma unroll
      for (int k = 0; k < MOST; k++) all[k] = nothing();
      if (g < span.groups) {
#pragma unroll 4
        for (unsigned a = from; a < s.agents; a += stride)
          n += add(all, rows + (u64)(g * s.agents + a) * ROW, votes[g * s.agents + a]);
      }
      for (unsigned d = team / 2; d > 0; d /= 2) {
        n += (unsigned)__shfl_xor_sync(FULL, (int)n, d);
#pragma unroll
        for (int k = 0; k < MOST; k++) all[k] = merged(all[k], __shfl_xor_sync(FULL, all[k], d));
      }
      if (g >= span.groups || lane % team != 0 || n == 0) continue;
      for (int k = 0; k < MOST; k++) merge_into(&heard->sums[g][k], all[k]);
      atomicAdd(&heard->sums[g][MOST], (int)n);
    }
  }

  // A value as agents hold it.
  static __device__ __forceinline__ float held_as(float v) {
    return ELEM::BYTES == 4 ? v : __uint_as_float(BF16::half(v) << 16);
  }

  // Updates the node of group g of a span, and what its agents hear.
  __device__ __forceinline__ void update(const Swarm &s, const Span &span, unsigned g) const {
    const unsigned slot = span.slot + g;
    float *to = heard->inputs[g];
    if (decision) {
      const unsigned won = s.decide(s.counts(span.frame, slot));
      to[decision - 1] = held_as(won < s.candidates ? (float)(won + 1) / (float)s.candidates : 0.0f);
    }
    if (!node) return;
    unsigned char *page = s.pages + span.frame * s.page_bytes;
    float *kept = (float *)(page + knowledge) + (u64)slot * width;
    u64 *done = (u64 *)(page + updates) + slot;
    const int n = heard->sums[g][MOST];
    const double of = merge == AGENT_MERGE_MAX ? 1.0 : (double)n;
    for (unsigned k = 0; k < width; k++) {
      const float old = kept[k];
      float v = n ? (float)((double)heard->sums[g][k] / (of * (double)UNIT)) : old;
      if (n && merge == AGENT_MERGE_EMA && *done != 0) v = fma32(rate, v - old, old);
      if (n) kept[k] = v;
      to[node - 1 + k] = held_as(v);
    }
    if (n) *done += 1;
    clear(heard->sums[g]);
  }

  // Where the sums of a span of one group are kept.
  __device__ __forceinline__ int *place(const Span &span) const { return kept + (u64)span.first * (MOST + 1); }

  // Makes what the agents of a span hear. All threads of a block call it.
  __device__ __forceinline__ void tell(const Swarm &s, const Span &span) const {
    if (keeps && fresh && span.groups && place(span)[MOST] >= 0) {
      if (threadIdx.x <= MOST) heard->sums[0][threadIdx.x] = place(span)[threadIdx.x];
    } else if (node) {
      add(s, span);
    }
    __syncthreads();
    for (unsigned g = threadIdx.x; g < span.groups; g += blockDim.x) update(s, span, g);
    __syncthreads();
  }

  // Adds the units of the lane's agents after a step to its sums; left is the number of agents from the first on.
  __device__ __forceinline__ void count(int *sums, bool *odd, const float (*units)[PIECE], int left) const {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (8 * r >= left) continue;
#pragma unroll
      for (int k = 0; k < PIECE; k++) {
        if (threadIdx.x % 4 * PIECE + k >= width) continue;
        *odd = *odd || (__float_as_uint(units[r][k]) & 0x7f800000u) == 0x7f800000u;
        sums[k] = merged(sums[k], number_of(units[r][k]));
      }
    }
  }

  // Merges the sums of the lanes of a warp into those of the span.
  __device__ __forceinline__ void collect(int *sums, bool odd) const {
    const unsigned first = threadIdx.x % 4 * PIECE;
    if (__any_sync(FULL, odd) && threadIdx.x % 32 == 0) atomicAdd(&heard->next[MOST], 1);
#pragma unroll
    for (int d = 16; d >= 4; d /= 2) {
#pragma unroll
      for (int k = 0; k < PIECE; k++) sums[k] = merged(sums[k], (int)__shfl_xor_sync(FULL, sums[k], d));
    }
    if (threadIdx.x % 32 >= 4) return;
#pragma unroll
    for (int k = 0; k < PIECE; k++)
      if (first + k < width) merge_into(&heard->next[first + k], sums[k]);
  }

  // Keeps the sums of a span of one group for the next tick, after all threads of the block have met.
  __device__ __forceinline__ void keep(const Swarm &s, const Span &span) const {
    if (!keeps || !span.groups || threadIdx.x != 0) return;
    int *to = place(span);
    const bool odd = heard->next[MOST] != 0;
    for (int k = 0; k < MOST; k++) to[k] = odd ? 0 : heard->next[k];
    to[MOST] = odd ? -1 : (int)s.agents;
    clear(heard->next);
  }

  // Replaces the inputs of the lane's agents, the first of them at a place of the span, by those that they hear.
  __device__ __forceinline__ void hear(float (*inputs)[PIECE], const Swarm &s, const Span &span, unsigned first) const {
    const unsigned lane = threadIdx.x % 32, agents = span.groups * s.agents;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const unsigned a = first + lane / 4 + 8 * r;
      const float *from = heard->inputs[a < agents && span.groups > 1 ? s.group(a) : 0] + lane % 4 * PIECE;
#pragma unroll
      for (int k = 0; k < PIECE; k++)
        if (mask >> k & 1) inputs[r][k] = from[k];
    }
  }
};
