// agent_tell makes the knowledge node of each group from the units of its agents, and writes what the agents of a group
// hear into the inputs that they hold: the decision of their group, and its node. See kernels.AgentTellParams. A warp
// has a group: sums are of integers, exact in any order, and stay in registers.
#include "agents.cuh"

#ifndef AGENT_MOST_NODE // the Go constants that say what each is come before the text
#define AGENT_VAR_KNOWLEDGE 4
#define AGENT_VAR_UPDATES 5
#define AGENT_MOST_NODE 8
#define AGENT_MERGE_MAX 1
#define AGENT_MERGE_EMA 2
#endif

#define FULL 0xffffffffu
#define MOST AGENT_MOST_NODE
#define ONE 16384.0f // a unit of 1 as an integer

// The integer of a unit, rounded to nearest: the last bits of a float32 that is 1.5 * 2^23 and more are an integer.
__device__ __forceinline__ int number_of(float v) {
  v = v > 1.0f ? 1.0f : (v < -1.0f ? -1.0f : v);
  return (int)(__float_as_uint(fma32(v, ONE, 12582912.0f)) - 0x4b400000u);
}

__device__ __forceinline__ void put(float *to, float v) { *to = v; }
__device__ __forceinline__ void put(unsigned short *to, float v) { *to = (unsigned short)BF16::half(v); }

// Where the elements of a type stand.
template <class E> struct Stored;
template <> struct Stored<F32> { typedef float Type; };
template <> struct Stored<BF16> { typedef unsigned short Type; };

struct Tell {
  unsigned decision, node, width, merge, hidden; // columns are counted from 1 on; 0: it is not heard
  float rate;
  unsigned knowledge, updates; // offsets in a page

  // Adds up the units of the agents of a group from row on, and returns how many agents are in the result.
  template <class E> __device__ __forceinline__ unsigned add(const unsigned char *row, const unsigned char *votes,
      unsigned agents, int *all) const {
    const unsigned lane = threadIdx.x % 32;
    unsigned n = 0;
#pragma unroll
    for (int k = 0; k < MOST; k++) all[k] = merge == AGENT_MERGE_MAX ? -16384 : 0;
    for (unsigned a = lane; a < agents; a += 32) {
      unsigned words[MOST * E::BYTES / 4];
      const uint4 *from = (const uint4 *)(row + (u64)a * (2 * hidden * E::BYTES));
#pragma unroll
      for (int k = 0; k < MOST * E::BYTES / 4; k += 4) {
        const uint4 v = from[k / 4];
        words[k] = v.x, words[k + 1] = v.y, words[k + 2] = v.z, words[k + 3] = v.w;
      }
      float v[MOST];
      E::unpack(v, words, MOST);
      bool counts = votes[a] != 0;
#pragma unroll
      for (int k = 0; k < MOST; k++)
        if ((unsigned)k < width) counts = counts && (__float_as_uint(v[k]) & 0x7f800000u) != 0x7f800000u;
      if (!counts) continue;
      n++;
#pragma unroll
      for (int k = 0; k < MOST; k++) {
        if ((unsigned)k >= width) continue;
        const int i = number_of(v[k]);
        all[k] = merge == AGENT_MERGE_MAX ? (i > all[k] ? i : all[k]) : all[k] + i;
      }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      n += (unsigned)__shfl_xor_sync(FULL, (int)n, d);
#pragma unroll
      for (int k = 0; k < MOST; k++) {
        const int i = __shfl_xor_sync(FULL, all[k], d);
        all[k] = merge == AGENT_MERGE_MAX ? (i > all[k] ? i : all[k]) : all[k] + i;
      }
    }
    return n;
  }

  // The node of a group after this update.
  template <class E> __device__ __forceinline__ void update(unsigned char *page, unsigned slot,
      const unsigned char *row, const unsigned char *votes, unsigned agents, float *values) const {
    int all[MOST];
    const unsigned n = add<E>(row, votes, agents, all), lane = threadIdx.x % 32;
    float *kept = (float *)(page + knowledge) + (u64)slot * width;
    u64 *done = (u64 *)(page + updates) + slot;
    const bool first = *done == 0;
#pragma unroll
    for (int k = 0; k < MOST; k++) {
      if ((unsigned)k >= width) continue;
      const float old = kept[k];
      const double of = merge == AGENT_MERGE_MAX ? 1.0 : (double)n;
      float v = n ? (float)((double)all[k] / (of * 16384.0)) : old;
      if (n && merge == AGENT_MERGE_EMA && !first) v = fma32(rate, v - old, old);
      values[k] = v;
    }
    __syncwarp(FULL);
    if (lane != 0 || n == 0) return;
#pragma unroll
    for (int k = 0; k < MOST; k++)
      if ((unsigned)k < width) kept[k] = values[k];
    *done += 1;
  }

  template <class E> __device__ __forceinline__ void group(const Swarm &s, unsigned char *page, unsigned slot) const {
    typedef typename Stored<E>::Type Type;
    unsigned char *row = s.variable(page, AGENT_VAR_ROW) + (u64)slot * s.agents * (2 * hidden * E::BYTES);
    const unsigned char *votes = s.variable(page, AGENT_VAR_VOTE) + (u64)slot * s.agents;
    float told = 0.0f, values[MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++) values[k] = 0.0f;
    if (decision) {
      const unsigned won = s.decide(s.counts(page, slot));
      if (won < s.candidates) told = (float)(won + 1) / (float)s.candidates;
    }
    if (node) update<E>(page, slot, row, votes, s.agents, values);
    for (unsigned a = threadIdx.x % 32; a < s.agents; a += 32) {
      Type *inputs = (Type *)(row + (u64)a * (2 * hidden * E::BYTES)) + hidden;
      if (decision) put(inputs + decision - 1, told);
      if (!node) continue;
#pragma unroll
      for (int k = 0; k < MOST; k++)
        if ((unsigned)k < width) put(inputs + node - 1 + k, values[k]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(256)
agent_tell(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
           const unsigned *params, unsigned groups, unsigned first, unsigned count, unsigned decision, unsigned node,
           unsigned width, unsigned merge, unsigned rate, unsigned hidden, unsigned bf16) {
  const Swarm s(pages, page_bytes, frames, layout, params, groups);
  Tell t = {decision, node, width, merge, hidden, __uint_as_float(rate), 0, 0};
  if (node) t.knowledge = layout[2 + AGENT_VAR_KNOWLEDGE], t.updates = layout[2 + AGENT_VAR_UPDATES];
  const u64 begin = (u64)first * s.slots, behind = begin + (u64)count * s.slots;
  const u64 end = behind < groups ? behind : groups;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 g = begin + (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; g < end; g += warps) {
    const unsigned page = (unsigned)(g / s.slots), slot = (unsigned)(g - (u64)page * s.slots);
    unsigned char *at = s.pages + s.frames[page] * s.page_bytes;
    if (bf16)
      t.group<BF16>(s, at, slot);
    else
      t.group<F32>(s, at, slot);
  }
}
