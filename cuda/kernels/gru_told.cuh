// What the agents of a gru hear of their group in a tick: its decision, and its knowledge node. A block makes the nodes
// of the groups of a span before it steps their agents. The agents read the node from shared memory; what they hold in
// memory does not change. See kernels.ToldParams. Sums are of integers, exact in any order.
//
// The sums need the units of a group before its first agent steps, so a tick reads them twice. Small groups are in the
// cache the second time. Of large ones the tick adds up the units while it has stepped them, and keeps the sums for the
// next tick. So does each tick where a node is of several groups, which are in any blocks.
//
// Where an agent has a weight of its own, or a node by its vote or key, it adds itself to the sums behind its step.
#pragma once

#include "agent_node.cuh"
#include "fmath.cuh"
#include "gru_agents.cuh"

#define MOST AGENT_MOST_NODE
#define UNIT ((int)AGENT_UNIT_SCALE) // a unit of 1 as an integer
#define NONE 0xffffffffu
// Sums that agents add themselves to: lines of them for each slot, which are of one group, vote or key. Of few slots
// each has a line for each quad of a warp, so that the quads of a warp do not meet.
#define FEW 16         // slots with QUADS lines each
#define QUADS 8
#define LINE_ROW 132   // words of a row of lines: the units that lanes of a quad have are in other banks
#define LINE_BITS 16   // of the low part of a product; see kernels.ToldParams for what does not overflow
#define MOST_POOLED 32767 // agents between two times that lines become sums of nodes
// Agents of a group from which on all warps of a block add up one group at a time. Groups of fewer have a warp each, or
// a part of one.
#define WHOLE_BLOCK 257

// What a lane adds up over the tiles of a span. Of agents that add themselves, see gather_one and gather_votes.
struct Carried {
  int low[PIECE], high[PIECE], weights;
};

// What a block shares of the groups of a span.
struct Heard {
  union {
    struct {
      int sums[AGENT_SPAN_GROUPS][MOST + 1]; // of the units, or the largest of each; behind them the number of agents
      int next[MOST + 1]; // of the group of a large span behind its step; behind them whether one is odd
    } group;
    int lines[(2 * MOST + 1) * LINE_ROW]; // of agents that add themselves
  };
  float inputs[AGENT_SPAN_GROUPS][HIDDEN];
  float voted[AGENT_MOST_CANDIDATES + 1][MOST]; // the nodes by vote; the first, which is 0, is of agents without one
  int pulls[HIDDEN]; // of the node of the first group, where agents add themselves to nodes of groups; see pull
  unsigned row; // words of a row of the pool, 0: it has no lines
};

// Memory that a block shares if its launch has some: the lines of nodes by key that do not fit above.
#ifdef __CUDACC__
extern __shared__ int pool[];
#else
static int pool[4096];
#endif

// The number of words of the pool.
__device__ __forceinline__ unsigned pool_words() {
#ifdef __CUDACC__
  unsigned bytes;
  asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
  return bytes / 4;
#else
  return sizeof pool / 4;
#endif
}

// Nodes of several groups each.
struct Nodes {
  unsigned count, width, turn; // count 0: each group has a node; turn: the entry of totals with the present sums
  u64 *totals;                 // [3][count][width + 1], see kernels.ToldParams
  const unsigned *of;          // by group
  unsigned by;                 // AGENT_BY_GROUP and so on
  const float *values;         // [count][width]: by vote and by key: the nodes of this step

  // The sums of the node of a group, of an entry behind the present one.
  __device__ __forceinline__ u64 *sums(unsigned group, unsigned behind) const {
    return totals + ((u64)((turn + behind) % 3) * count + of[group]) * (width + 1);
  }
};

struct Told {
  Heard *heard;
  unsigned decision, node, width, merge; // inputs are counted from 1 on; 0: it is not heard
  float rate;                  // of an ema; of attention see kernels.ToldParams
  bool alone;                  // agents add themselves
  int *kept;                   // by group: the sums for the next tick; behind them the number of agents, -1: none
  bool fresh;                  // kept is of the present state
  bool keeps;                  // sums are kept: groups are large, so a span has one, or a node is of several groups
  unsigned mask;               // bit k: input k of the lane's piece is heard
  const unsigned *offsets;     // of variables in a page
  Nodes nodes;

  // All threads of a block open it, and meet before the first span.
  __device__ __forceinline__ Told(Heard *to, const unsigned *layout, unsigned d, unsigned first, unsigned units,
      unsigned how, float r, int *sums, bool are_fresh, const Nodes &shares)
      : heard(to), decision(d), node(first), width(units), merge(how), rate(r),
          alone(first && shares.count && (shares.by != AGENT_BY_GROUP || how == AGENT_MERGE_ATTENTION)), kept(sums),
          fresh(are_fresh), keeps(first && !alone && (shares.count || (layout[0] >= AGENT_SPAN && layout[0] % 4 == 0))),
          mask(0), offsets(layout + 2), nodes(shares) {
    for (int k = 0; k < PIECE; k++) {
      const unsigned input = threadIdx.x % 4 * PIECE + k + 1;
      if (input == decision || (node && !by_agent() && input >= node && input < node + width)) mask |= 1u << k;
    }
    if (alone) {
      unsigned row = 0;
      if (nodes.by == AGENT_BY_KEY && nodes.count > AGENT_LINES) {
        row = (nodes.count + 27) / 32 * 32 + 4; // as LINE_ROW
        if ((u64)row * (high() + width + 1) > pool_words()) row = 0;
      }
      if (threadIdx.x == 0) heard->row = row;
      for (unsigned i = threadIdx.x; i < (2 * MOST + 1) * LINE_ROW; i += blockDim.x) heard->lines[i] = 0;
      for (unsigned i = threadIdx.x; i < row * (high() + width + 1); i += blockDim.x) pool[i] = 0;
      for (unsigned i = threadIdx.x; i < nodes.count * width && nodes.by == AGENT_BY_VOTE; i += blockDim.x)
        heard->voted[i / width + 1][i % width] = held_as(nodes.values[i]);
      if (threadIdx.x < MOST) heard->voted[0][threadIdx.x] = 0.0f;
      if (threadIdx.x < HIDDEN) heard->pulls[threadIdx.x] = 0;
      return;
    }
    for (unsigned g = threadIdx.x; g < AGENT_SPAN_GROUPS; g += blockDim.x) clear(heard->group.sums[g]);
    if (threadIdx.x == 0) clear(heard->group.next);
  }

  // Clears the entry of totals that the next step adds to.
  __device__ __forceinline__ void begin(unsigned steps) const {
    if (!nodes.count || !steps) return;
    const u64 words = (u64)nodes.count * (width + 1);
    u64 *to = nodes.totals + (nodes.turn + 2) % 3 * words;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (u64)gridDim.x * blockDim.x) to[i] = 0;
  }

  // Reports whether agents of a group may have different nodes.
  __device__ __forceinline__ bool by_agent() const { return alone && nodes.by != AGENT_BY_GROUP; }

  // The number of rows of lines before the rows of the high parts of products. The row of weights is behind all.
  __device__ __forceinline__ unsigned high() const { return merge == AGENT_MERGE_ATTENTION ? width : 0; }

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

  // A value within [-1, 1].
  static __device__ __forceinline__ float cut(float v) { return fminf(fmaxf(v, -1.0f), 1.0f); }

  // The integer of a unit, rounded to nearest: the last bits of a float32 that is 1.5 * 2^23 and more are an integer.
  static __device__ __forceinline__ int number_of(float v) {
    return (int)(__float_as_uint(fma32(cut(v), (float)UNIT, 12582912.0f)) - 0x4b400000u);
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

  // Adds up the groups of a span. AHEAD agents of a lane are on their way at once: more take registers.
  template <int AHEAD> __device__ __forceinline__ void add(const Swarm &s, const Span &span) const {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool whole = s.agents >= WHOLE_BLOCK;
    unsigned team = 1; // lanes of a group; each lane has four of its agents or more
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
#pragma unroll AHEAD
        for (unsigned a = from; a < s.agents; a += stride)
          n += add(all, rows + (u64)(g * s.agents + a) * ROW, votes[g * s.agents + a]);
      }
      for (unsigned d = team / 2; d > 0; d /= 2) {
        n += (unsigned)__shfl_xor_sync(FULL, (int)n, d);
#pragma unroll
        for (int k = 0; k < MOST; k++) all[k] = merged(all[k], __shfl_xor_sync(FULL, all[k], d));
      }
      if (g >= span.groups || lane % team != 0 || n == 0) continue;
      for (int k = 0; k < MOST; k++) merge_into(&heard->group.sums[g][k], all[k]);
      atomicAdd(&heard->group.sums[g][MOST], (int)n);
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
    float *kept = (float *)(page + offsets[AGENT_VAR_KNOWLEDGE]) + (u64)slot * width;
    u64 *done = (u64 *)(page + offsets[AGENT_VAR_UPDATES]) + slot;
    unsigned char *learned = page + offsets[AGENT_VAR_LEARNED] + slot;
    const u64 *total = nodes.count ? nodes.sums(span.first + g, 0) : 0;
    const u64 n = total ? total[width] : (u64)heard->group.sums[g][MOST];
    const bool merges = n && !*learned;
    const double of = merge == AGENT_MERGE_MAX ? 1.0 : (double)n;
    for (unsigned k = 0; k < width; k++) {
      const float old = kept[k];
      long long sum = total ? (long long)total[k] : heard->group.sums[g][k];
      if (total && merge == AGENT_MERGE_MAX) sum -= UNIT;
      const float v = merges ? merged_unit(sum, of, merge, rate, *done != 0, old) : old;
      if (merges) kept[k] = v;
      if (by_agent()) continue;
      to[node - 1 + k] = held_as(v);
      if (alone && g == 0) heard->pulls[k] = pull(held_as(v));
    }
    if (merges) {
      *done += 1;
      ((u64 *)(page + offsets[AGENT_VAR_UPDATED]))[slot] = *s.round(span.frame, slot) + 1;
    }
    if (*learned) *learned = 0;
    if (!total) clear(heard->group.sums[g]);
  }

  // Adds the sums of n agents to the sums of the node of a group.
  __device__ __forceinline__ void total(unsigned group, unsigned behind, const int *sums, unsigned n) const {
    u64 *to = nodes.sums(group, behind);
    for (unsigned k = 0; k < width; k++) {
      if (merge == AGENT_MERGE_MAX)
        atomicMax(to + k, (u64)(sums[k] + UNIT));
      else
        atomicAdd(to + k, (u64)(long long)sums[k]);
    }
    atomicAdd(to + width, (u64)n);
  }

  // Adds the groups of a span, which are added up, to their nodes.
  __device__ __forceinline__ void total(const Span &span, unsigned behind) const {
    for (unsigned g = threadIdx.x; g < span.groups; g += blockDim.x) {
      int *sums = heard->group.sums[g];
      if (sums[MOST]) total(span.first + g, behind, sums, (unsigned)sums[MOST]);
      clear(sums);
    }
  }

  // Where the sums of a span of one group are kept.
  __device__ __forceinline__ int *place(const Span &span) const { return kept + (u64)span.first * (MOST + 1); }

  // Has the agents of group g of a span hear its node as it is.
  __device__ __forceinline__ void recall(const Swarm &s, const Span &span, unsigned g) const {
    const float *from = (const float *)(s.pages + span.frame * s.page_bytes + offsets[AGENT_VAR_KNOWLEDGE]) +
        (u64)(span.slot + g) * width;
    for (unsigned k = 0; k < width; k++) {
      heard->inputs[g][node - 1 + k] = held_as(from[k]);
      if (g == 0) heard->pulls[k] = pull(held_as(from[k]));
    }
  }

  // Makes what the agents of a span hear. Of no steps it adds them to their nodes, or has them add themselves. All
  // threads of a block call it.
  __device__ __forceinline__ void tell(const Swarm &s, const Span &span, unsigned steps) const {
    if (alone) {
      for (unsigned g = threadIdx.x; g < span.groups; g += blockDim.x) {
        if (steps)
          update(s, span, g);
        else if (!by_agent())
          recall(s, span, g);
      }
      __syncthreads();
      return;
    }
    if (!nodes.count && keeps && fresh && span.groups && place(span)[MOST] >= 0) {
      if (threadIdx.x <= MOST) heard->group.sums[0][threadIdx.x] = place(span)[threadIdx.x];
    } else if (node && !(nodes.count && steps)) {
      add<4>(s, span);
    }
    if (!(nodes.count && steps)) __syncthreads();
    if (steps == 0) {
      if (nodes.count) total(span, 0);
      __syncthreads();
      return;
    }
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

  // Merges the sums of the lanes of a warp into the sums of the span.
  __device__ __forceinline__ void collect(int *sums, bool odd) const {
    const unsigned first = threadIdx.x % 4 * PIECE;
    if (__any_sync(FULL, odd) && threadIdx.x % 32 == 0) atomicAdd(&heard->group.next[MOST], 1);
#pragma unroll
    for (int d = 16; d >= 4; d /= 2) {
#pragma unroll
      for (int k = 0; k < PIECE; k++) sums[k] = merged(sums[k], (int)__shfl_xor_sync(FULL, sums[k], d));
    }
    if (threadIdx.x % 32 >= 4) return;
#pragma unroll
    for (int k = 0; k < PIECE; k++)
      if (first + k < width) merge_into(&heard->group.next[first + k], sums[k]);
  }

  // Keeps the sums of a span for the next tick, after all threads of the block have met. The span is of one group, or
  // of groups whose nodes are. The groups of a span with several nodes are added up again, and so are groups with an
  // agent that does not count.
  // turn is the number of the span in the block, and most the most agents of a span. last says that no span follows.
  __device__ __forceinline__ void keep(const Swarm &s, const Span &span, unsigned steps, unsigned turn, unsigned most,
      bool last) const {
    if (alone && (!heard->row || last || (turn + 1) % (MOST_POOLED / most) == 0)) pour(span, steps ? 1 : 0);
    if (!keeps || !span.groups) return;
    if (nodes.count) {
      if (nodes.of[span.first] == nodes.of[span.first + span.groups - 1] && heard->group.next[MOST] == 0) {
        if (threadIdx.x == 0) {
          total(span.first, 1, heard->group.next, span.groups * s.agents);
          // The last word is 0, and other warps may still read it.
          for (int k = 0; k < MOST; k++) heard->group.next[k] = nothing();
        }
        return;
      }
      add<2>(s, span);
      __syncthreads(); // next was read by all threads
      total(span, 1);
      if (threadIdx.x == 0) clear(heard->group.next);
      return;
    }
    if (threadIdx.x != 0) return;
    int *to = place(span);
    const bool odd = heard->group.next[MOST] != 0;
    for (int k = 0; k < MOST; k++) to[k] = odd ? 0 : heard->group.next[k];
    to[MOST] = odd ? -1 : (int)s.agents;
    clear(heard->group.next);
  }

  // The number of slots that the agents of a span have; NONE: of nodes by key, which are too many for lines.
  __device__ __forceinline__ unsigned slots(const Span &span) const {
    if (nodes.by != AGENT_BY_GROUP) return nodes.count <= AGENT_LINES || heard->row ? nodes.count : NONE;
    if (!span.groups) return 0;
    return nodes.of[span.first] == nodes.of[span.first + span.groups - 1] ? 1 : span.groups;
  }

  // The key of an agent at a place of a span.
  __device__ __forceinline__ unsigned key(const Swarm &s, const Span &span, unsigned at) const {
    return (span.first * s.agents + at) % nodes.count;
  }

  // The integer of a unit of a node that agents hear, of 2^-12 each.
  static __device__ __forceinline__ int pull(float v) {
    v = cut(v);
    return (int)(__float_as_uint(fma32(v, (float)(1 << AGENT_NODE_BITS), 12582912.0f)) - 0x4b400000u);
  }

  // The weight of an agent so far from its node, in 1 to 2^AGENT_WEIGHT_BITS; see kernels.ToldParams.
  __device__ __forceinline__ int weight(int far) const {
    const float x = mul((float)far, rate);
    const float e = reciprocal(exp32(x > AGENT_FARTHEST ? AGENT_FARTHEST : x));
    const int w = (int)(__float_as_uint(fma32(e, (float)(1 << AGENT_WEIGHT_BITS), 12582912.0f)) - 0x4b400000u);
    return w < 1 ? 1 : w;
  }

  // The lane's agents of a tile that count: bit r of agent g + 8 r. vote is the vote of the lane's own agent: 0
  // has not stepped. Agents count whose units of the node are finite.
  __device__ __forceinline__ unsigned counted(const float (*units)[PIECE], unsigned vote) const {
    const unsigned lane = threadIdx.x % 32, team = lane & ~3u, piece = lane % 4 * PIECE;
    unsigned which = __ballot_sync(FULL, OWNS && vote != 0) >> team & 15;
    float v = 0.0f; // not a number after a unit that is not finite
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int k = 0; k < PIECE; k++) v = fma32(units[r][k], 0.0f, v);
    }
    if (!__any_sync(FULL, v != v)) return which;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      bool odd = false;
#pragma unroll
      for (int k = 0; k < PIECE; k++)
        odd = odd || (piece + k < width && (__float_as_uint(units[r][k]) & 0x7f800000u) == 0x7f800000u);
      if (__ballot_sync(FULL, odd) >> team & 15) which &= ~(1u << r);
    }
    return which;
  }

  // Adds up a number of each of the lane's agents over the quad. Lane r of the quad has the sum of agent g + 8 r.
  static __device__ __forceinline__ int over_quad(const int *d) {
    const unsigned t = threadIdx.x % 4;
    if (ROWS == 4) {
      const int *low = d, *high = d + ROWS - 2;
      const int p = (int)__shfl_xor_sync(FULL, (unsigned)(t & 2 ? low[0] : high[0]), 2);
      const int q = (int)__shfl_xor_sync(FULL, (unsigned)(t & 2 ? low[1] : high[1]), 2);
      const int even = (t & 2 ? high[0] : low[0]) + p, odd = (t & 2 ? high[1] : low[1]) + q;
      return (t & 1 ? odd : even) + (int)__shfl_xor_sync(FULL, (unsigned)(t & 1 ? even : odd), 1);
    }
    const int own = (t & 1 ? d[1] : d[0]) + (int)__shfl_xor_sync(FULL, (unsigned)(t & 1 ? d[0] : d[1]), 1);
    return own + (int)__shfl_xor_sync(FULL, (unsigned)own, 2);
  }

  // A unit of the node that the agents of a slot hear.
  __device__ __forceinline__ float heard_of(unsigned slot, unsigned unit) const {
    if (nodes.by == AGENT_BY_VOTE) return heard->voted[slot + 1][unit];
    if (nodes.by == AGENT_BY_KEY) return held_as(nodes.values[(u64)slot * width + unit]);
    return heard->inputs[slot][node - 1 + unit];
  }

  // Has the lane's agents of a tile, the first of them at a place of the span, add themselves to the sums of their
  // slots. vote is the vote of the lane's own agent: 0 has not stepped.
  __device__ __forceinline__ void gather(const Swarm &s, const Span &span, unsigned slots, const float (*units)[PIECE],
      unsigned first, unsigned vote, unsigned behind, Carried *carried) const {
    const unsigned lane = threadIdx.x % 32, which = counted(units, vote);
    if (slots == 1 && nodes.by == AGENT_BY_GROUP) { // attention, see alone
      if (HIDDEN == 8) {
        gather_one(units, which, carried);
        return;
      }
      Carried own; // of more units it takes registers that are not there
      open(&own);
      gather_one(units, which, &own);
      settle_one(own);
      return;
    }
    // The slot of the lane's own agent.
    const unsigned at = first + lane / 4 + lane % 4 * 8;
    unsigned slot = NONE;
    if (OWNS && which >> lane % 4 & 1)
      slot = nodes.by == AGENT_BY_VOTE ? vote - 1 : (nodes.by == AGENT_BY_KEY ? key(s, span, at)
          : (slots > 1 ? s.group(at) : 0));
    if (nodes.by == AGENT_BY_VOTE && slot >= slots) slot = NONE;
    if (multiplies())
      gather_votes(units, slot, carried);
    else if (merge == AGENT_MERGE_ATTENTION)
      gather_weighted(slots, units, slot, behind);
    else
      gather_plain(slots, units, slot, behind);
  }

  // Where the lane's quad has a line of slot 0.
  __device__ __forceinline__ int *line(unsigned lines) const {
    return (heard->row ? pool : heard->lines) + threadIdx.x % 32 / 4 % lines;
  }

  // Opens the sums of a lane.
  __device__ __forceinline__ void open(Carried *c) const {
#pragma unroll
    for (int k = 0; k < PIECE; k++) c->low[k] = nothing(), c->high[k] = 0;
    c->weights = 0;
  }

  // Adds what a lane has added up over the tiles of a span to lines. slots is the number of slots of the span.
  __device__ __forceinline__ void settle(unsigned slots, const Carried &c) const {
    if (HIDDEN != 8) return;
    if (slots == 1 && nodes.by == AGENT_BY_GROUP) settle_one(c);
    if (multiplies()) settle_votes(c);
  }

  // Gather of attention where all agents of the span have one node. The lane adds up its own agents.
  __device__ __forceinline__ void gather_one(const float (*units)[PIECE], unsigned which, Carried *c) const {
    const unsigned lane = threadIdx.x % 32;
    const int *pulls = heard->pulls + lane % 4 * PIECE;
    int d[ROWS], far = 0;
#pragma unroll
    for (int k = 0; k < PIECE; k++) far += (pulls[k] < 0 ? -pulls[k] : pulls[k]) * UNIT;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      unsigned of = (unsigned)far;
#pragma unroll
      for (int k = 0; k < PIECE; k++) of -= (unsigned)pulls[k] * (unsigned)number_of(units[r][k]);
      d[r] = (int)of;
    }
    int w = weight(over_quad(d));
    if (!(OWNS && which >> lane % 4 & 1)) w = 0;
    c->weights += w;
    long long sums[PIECE];
#pragma unroll
    for (int k = 0; k < PIECE; k++) sums[k] = (long long)((u64)(unsigned)c->high[k] << 32 | (unsigned)c->low[k]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const int of = (int)__shfl_sync(FULL, (unsigned)w, (int)(lane & ~3u) + r);
#pragma unroll
      for (int k = 0; k < PIECE; k++) sums[k] += (long long)number_of(units[r][k]) * of;
    }
#pragma unroll
    for (int k = 0; k < PIECE; k++) c->low[k] = (int)sums[k], c->high[k] = (int)(sums[k] >> 32);
  }

  // Adds the sums of gather_one to the line of the quad.
  __device__ __forceinline__ void settle_one(const Carried &c) const {
    const unsigned piece = threadIdx.x % 4 * PIECE;
    int *to = heard->lines + threadIdx.x % 32 / 4;
    atomicAdd(to + 2 * width * LINE_ROW, c.weights);
    to += piece * LINE_ROW;
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
      if (piece + k >= width) continue;
      const long long sum = (long long)((u64)(unsigned)c.high[k] << 32 | (unsigned)c.low[k]);
      atomicAdd(to + k * LINE_ROW, (int)(sum & (1 << LINE_BITS) - 1));
      atomicAdd(to + (width + k) * LINE_ROW, (int)(sum >> LINE_BITS));
    }
  }

  // Reports whether votes are a matrix by which units are multiplied.
  __device__ __forceinline__ bool multiplies() const {
    return HIDDEN == 8 && nodes.by == AGENT_BY_VOTE && nodes.count <= 8 && merge != AGENT_MERGE_ATTENTION &&
        merge != AGENT_MERGE_MAX;
  }

  // Transposes 8 rows of 8 halves of words. Lane 4 g + t has halves 2 t and 2 t + 1 of row g, and then of column g.
  static __device__ __forceinline__ unsigned transposed(unsigned v) {
    const unsigned lane = threadIdx.x % 32, column = lane / 4, from = lane % 4 * 8 + column / 2;
    const unsigned p = __shfl_sync(FULL, v, (int)from), q = __shfl_sync(FULL, v, (int)from + 4);
    return __byte_perm(p, q, column % 2 ? 0x7632 : 0x5410);
  }

  // Four bytes: 1 where a byte is g, else 0. A byte is below 128, or 255.
  static __device__ __forceinline__ unsigned equal(unsigned bytes, unsigned g) {
    const unsigned x = bytes ^ g * 0x01010101u;
    return ~((x & 0x7f7f7f7fu) + 0x7f7f7f7fu | x) >> 7 & 0x01010101u;
  }

  // Gather of a mean by up to 8 candidates: a product of the units of 32 agents and of their votes, where each is a row
  // of a 1 and else 0. Rows of the product are the low bytes of units, and behind them the high ones; columns are
  // candidates. The lane has the candidates 2 t and 2 t + 1 of unit g.
  __device__ __forceinline__ void gather_votes(const float (*units)[PIECE], unsigned slot, Carried *c) const {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (slot != NONE) atomicAdd(heard->lines + width * LINE_ROW + slot * QUADS + lane % QUADS, 1);
    unsigned votes = (slot & 255) << 8 * t; // of the agents of the quad
    votes |= __shfl_xor_sync(FULL, votes, 1);
    votes |= __shfl_xor_sync(FULL, votes, 2);
    const unsigned p = __shfl_sync(FULL, votes, (int)(8 * t)), q = __shfl_sync(FULL, votes, (int)(8 * t + 4));
    unsigned columns[4];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float v[2] = {cut(units[r][0]), cut(units[r][1])};
      columns[r % 4] = transposed(halves_of(v, (float)UNIT)); // of agents 2 t and 2 t + 1
    }
    const Bytes a = bytes_of(columns[0], columns[1]), b = bytes_of(columns[2 % ROWS], columns[3 % ROWS]);
    int sums[4] = {c->low[0], c->low[1], c->high[0], c->high[1]};
    mma32(sums, sums, a.low, a.high, b.low, b.high, equal(__byte_perm(p, q, 0x5140), g),
        equal(__byte_perm(p, q, 0x7362), g));
    c->low[0] = sums[0], c->low[1] = sums[1], c->high[0] = sums[2], c->high[1] = sums[3];
  }

  // Adds the sums of gather_votes to a line of the warp.
  __device__ __forceinline__ void settle_votes(const Carried &c) const {
    const unsigned unit = threadIdx.x % 32 / 4, candidate = threadIdx.x % 4 * 2;
    int *to = heard->lines + unit * LINE_ROW + candidate * QUADS + threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < 2; k++)
      if (unit < width && candidate + k < nodes.count) atomicAdd(to + k * QUADS, c.high[k] * 256 + c.low[k]);
  }

  // Gather of attention. slot is the slot of the lane's own agent.
  __device__ __forceinline__ void gather_weighted(unsigned slots, const float (*units)[PIECE], unsigned slot,
      unsigned behind) const {
    const unsigned lane = threadIdx.x % 32, team = lane & ~3u, piece = lane % 4 * PIECE;
    const unsigned lines = slots <= FEW ? QUADS : 1, row = heard->row ? heard->row : LINE_ROW;
    int d[ROWS];
    unsigned of[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      of[r] = __shfl_sync(FULL, slot, (int)team + r);
      unsigned far = 0;
#pragma unroll
      for (int k = 0; k < PIECE; k++) {
        if (of[r] == NONE || piece + k >= width) continue;
        const int n = pull(heard_of(of[r], piece + k));
        far += (unsigned)((n < 0 ? -n : n) * UNIT - n * number_of(units[r][k]));
      }
      d[r] = (int)far;
    }
    const int w = weight(over_quad(d));
    u64 *sums = nodes.totals + (u64)((nodes.turn + behind) % 3) * nodes.count * (width + 1);
    if (slot != NONE) {
      if (slots == NONE)
        atomicAdd(sums + (u64)slot * (width + 1) + width, (u64)w);
      else
        atomicAdd((heard->row ? pool : heard->lines) + 2 * width * row + slot * lines + lane % lines, w);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const int weighs = (int)__shfl_sync(FULL, (unsigned)w, (int)team + r);
      if (of[r] == NONE) continue;
      int *to = line(lines) + of[r] * lines + piece * row;
#pragma unroll
      for (int k = 0; k < PIECE; k++) {
        if (piece + k >= width) continue;
        const int v = number_of(units[r][k]) * weighs;
        if (slots == NONE) {
          put(sums + (u64)of[r] * (width + 1) + piece + k, v);
        } else {
          atomicAdd(to + k * row, v & (1 << LINE_BITS) - 1);
          atomicAdd(to + (width + k) * row, v >> LINE_BITS);
        }
      }
    }
  }

  // Gather of the other ways to merge.
  __device__ __forceinline__ void gather_plain(unsigned slots, const float (*units)[PIECE], unsigned slot,
      unsigned behind) const {
    const unsigned lane = threadIdx.x % 32, team = lane & ~3u, piece = lane % 4 * PIECE;
    const unsigned lines = slots <= FEW ? QUADS : 1, row = heard->row ? heard->row : LINE_ROW;
    u64 *sums = nodes.totals + (u64)((nodes.turn + behind) % 3) * nodes.count * (width + 1);
    if (slot != NONE) {
      if (slots == NONE)
        atomicAdd(sums + (u64)slot * (width + 1) + width, (u64)1);
      else
        atomicAdd((heard->row ? pool : heard->lines) + width * row + slot * lines + lane % lines, 1);
    }
    unsigned of[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) of[r] = __shfl_sync(FULL, slot, (int)team + r);
    if (piece >= width) return;
    int *base = line(lines) + piece * row;
    if (slots != NONE && merge != AGENT_MERGE_MAX) { // agents that do not count add 0
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        int *to = base + (of[r] == NONE ? 0 : of[r] * lines);
#pragma unroll
        for (int k = 0; k < PIECE; k++)
          if (piece + k < width) atomicAdd(to + k * row, of[r] == NONE ? 0 : number_of(units[r][k]));
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (of[r] == NONE) continue;
#pragma unroll
      for (int k = 0; k < PIECE; k++) {
        if (piece + k >= width) continue;
        const int v = number_of(units[r][k]);
        if (slots == NONE)
          put(sums + (u64)of[r] * (width + 1) + piece + k, merge == AGENT_MERGE_MAX ? v + UNIT : v);
        else
          atomicMax(base + of[r] * lines + k * row, v + UNIT);
      }
    }
  }

  // Merges a value into a sum of a node.
  __device__ __forceinline__ void put(u64 *to, long long v) const {
    if (merge == AGENT_MERGE_MAX)
      atomicMax(to, (u64)v);
    else
      atomicAdd(to, (u64)v);
  }

  // Merges the lines of a span into the sums of nodes, and clears them, after all threads of the block have met.
  __device__ __forceinline__ void pour(const Span &span, unsigned behind) const {
    const unsigned n = slots(span), lines = n <= FEW ? QUADS : 1, pooled = heard->row, row = pooled ? pooled : LINE_ROW;
    if (n == NONE) return;
    for (unsigned i = threadIdx.x; i < n * (width + 1); i += blockDim.x) {
      const unsigned slot = i % n, k = i / n;
      int *low = (pooled ? pool : heard->lines) + (k < width ? k : high() + width) * row + slot * lines;
      long long sum = 0;
      for (unsigned line = 0; line < lines; line++) {
        const long long v = low[line];
        low[line] = 0;
        if (k < width && merge == AGENT_MERGE_MAX) {
          sum = v > sum ? v : sum;
          continue;
        }
        sum += v;
        if (k == width || merge != AGENT_MERGE_ATTENTION) continue;
        int *more = low + width * row + line;
        sum += (long long)*more * (1 << LINE_BITS);
        *more = 0;
      }
      if (!sum) continue;
      u64 *to = nodes.by == AGENT_BY_GROUP ? nodes.sums(span.first + slot, behind)
          : nodes.totals + ((u64)((nodes.turn + behind) % 3) * nodes.count + slot) * (width + 1);
      if (k < width)
        put(to + k, sum);
      else
        atomicAdd(to + k, (u64)sum);
    }
  }

  // Replaces the inputs of the lane's agents by what they hear. The first agent is at place first of the span. vote is
  // what the lane's own agent votes for before the step.
  __device__ __forceinline__ void hear(float (*inputs)[PIECE], const Swarm &s, const Span &span, unsigned first,
      unsigned vote) const {
    const unsigned lane = threadIdx.x % 32, agents = span.groups * s.agents;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const unsigned a = first + lane / 4 + 8 * r;
      const float *from = heard->inputs[a < agents && span.groups > 1 ? s.group(a) : 0] + lane % 4 * PIECE;
#pragma unroll
      for (int k = 0; k < PIECE; k++)
        if (mask >> k & 1) inputs[r][k] = from[k];
    }
    if (by_agent()) hear_node(inputs, s, span, first, vote);
  }

  // The part of hear about nodes by vote and by key.
  __device__ __forceinline__ void hear_node(float (*inputs)[PIECE], const Swarm &s, const Span &span, unsigned first,
      unsigned vote) const {
    const unsigned lane = threadIdx.x % 32, unit = lane % 4 * PIECE + 1 - node; // of the first of the lane's inputs
    if (nodes.by == AGENT_BY_VOTE) {
      const unsigned own = vote <= nodes.count ? vote : 0;
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float *from = heard->voted[__shfl_sync(FULL, own, (int)(lane & ~3u) + r)];
#pragma unroll
        for (int k = 0; k < PIECE; k++)
          if (unit + k < width) inputs[r][k] = from[unit + k];
      }
      return;
    }
    const unsigned each = 8 % nodes.count;
    unsigned own = key(s, span, first + lane / 4);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float *from = nodes.values + (u64)own * width;
#pragma unroll
      for (int k = 0; k < PIECE; k++)
        if (unit + k < width) inputs[r][k] = held_as(from[unit + k]);
      if (own += each, own >= nodes.count) own -= nodes.count;
    }
  }
};
