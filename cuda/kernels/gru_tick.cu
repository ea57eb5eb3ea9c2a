// gru_tick_h8_f32 and its like, for 8, 16 and 32 units and state of float32 or bf16, step all agents of a swarm; see
// kernels.TickParams. gru_told_h8_f32 and its like step agents that hear their group; see kernels.ToldParams.
#include "gru_told.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_tick
#endif
#ifndef TOLD
#define TOLD 0 // 1: agents hear their group
#endif

#define TILE (16 * TILES) // agents that a warp steps at once

// Where a lane's agents of a tile are.
struct Cursor {
  unsigned char *row; // the piece of its first agent; of no meaning where left is nothing
  int left;           // agents of the span from it on
};

struct Dense {
  enum { SPAN = AGENT_SPAN, TOLD_STEPS = TOLD };
  const Swarm &s;
  const Told *told; // nil of agents that hear nothing of their group
  Net net;
  Cursor ahead; // the tile that is under way
  unsigned ballot; // of agents that add themselves: the vote of the lane's own agent of it, 0 is none
  unsigned h[ROWS][WORDS], x[ROWS][WORDS];

  __device__ __forceinline__ Dense(const Swarm &swarm, const Told *of, Shared *memory, const unsigned *table)
      : s(swarm), told(of), net(memory, table, swarm.candidates), ballot(0) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int k = 0; k < WORDS; k++) h[r][k] = x[r][k] = 0;
    }
  }

  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (8 * r >= ahead.left) continue;
      Piece::load(h[r], ahead.row + 8 * r * ROW);
      Piece::load(x[r], ahead.row + 8 * r * ROW + HALF);
    }
  }

  // Goes to the warp's first tile of a span.
  __device__ __forceinline__ void go(const Span &span) {
    const unsigned lane = threadIdx.x % 32, first = threadIdx.x / 32 * TILE + lane / 4;
    ahead.left = (int)(span.groups * s.agents) - (int)first;
    ahead.row = s.variable(span.frame, AGENT_VAR_ROW) + ((u64)span.slot * s.agents + first) * ROW +
        lane % 4 * (4 * WORDS);
  }

  // Fetches the vote of the lane's own agent of a tile. first is the place of the tile's first agent in the span.
  __device__ __forceinline__ void poll(const Span &span, unsigned first) {
    if (!TOLD || !told->alone) return;
    const unsigned lane = threadIdx.x % 32, own = first + lane / 4 + lane % 4 * 8;
    ballot = 0;
    if (OWNS && own < span.groups * s.agents)
      ballot = s.variable(span.frame, AGENT_VAR_VOTE)[(u64)span.slot * s.agents + own];
  }

  __device__ __forceinline__ void open(const Span &first) {
    go(first);
    fetch();
    poll(first, threadIdx.x / 32 * TILE);
  }

  // Tells the agents of a span what they hear of their groups; of no steps it adds up their units.
  __device__ __forceinline__ void tell(const Span &span, unsigned steps) const {
    if (TOLD) told->tell(s, span, steps);
  }

  // Reports whether a tick of no steps has agents add themselves to nodes.
  __device__ __forceinline__ bool adds() const { return TOLD && told->alone; }

  __device__ __forceinline__ void keep(const Span &span, unsigned steps, unsigned turn, unsigned most,
      bool last) const {
    if (TOLD) told->keep(s, span, steps, turn, most, last);
  }

  template <bool MANY> __device__ __forceinline__ void step(const Span &span, const Span &next, unsigned steps,
      unsigned *counts) {
    const unsigned lane = threadIdx.x % 32, each = blockDim.x / 32 * TILE;
    const unsigned agents = span.groups * s.agents;
    unsigned first = threadIdx.x / 32 * TILE;
    unsigned char *vote = s.variable(span.frame, AGENT_VAR_VOTE) + (u64)span.slot * s.agents;
    Carried sums;
    bool odd = false;
    const bool moves = !TOLD || steps > 0; // else agents add themselves alone
    const unsigned slots = TOLD && told->alone ? told->slots(span) : 0;
    if (TOLD) told->open(&sums);
    if (first >= agents) open(next);
    for (; first < agents; first += each) {
      const Cursor now = ahead;
      float units[ROWS][PIECE], inputs[ROWS][PIECE];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        ELEM::unpack(units[r], h[r], PIECE);
        ELEM::unpack(inputs[r], x[r], PIECE);
      }
      unsigned vote_of = ballot;
      if (TOLD && moves) told->hear(inputs, s, span, first, vote_of);
      Bytes a[ROWS][ALL];
      unsigned halves[ROWS];
      Net::hold(a, halves, inputs);
      if (first + each < agents) {
        ahead.row += each * ROW;
        ahead.left -= (int)each;
        poll(span, first + each);
      } else {
        go(next);
        poll(next, threadIdx.x / 32 * TILE);
      }
      fetch();
      unsigned words[ROWS][WORDS];
      for (unsigned left = MANY ? steps : moves; left > 0; left--) {
        Net::numbers(a, halves, units);
        net.step(units, a);
#pragma unroll
        for (int r = 0; r < ROWS; r++) ELEM::pack(words[r], units[r], PIECE); // what is stored is what is stepped next
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (moves && 8 * r < now.left) Piece::store(now.row + 8 * r * ROW, words[r]);
      if (TOLD && told->keeps) told->count(sums.low, &odd, units, now.left);
      const unsigned best = net.elected(units), own = first + lane / 4 + lane % 4 * 8;
      if (moves) vote_of = OWNS && own < agents ? best + 1 : 0;
      if (moves && vote_of) {
        vote[own] = (unsigned char)vote_of;
        atomicAdd(&counts[s.group(own) * s.candidates + best], 1u);
      }
      if (TOLD && told->alone) told->gather(s, span, slots, units, first, vote_of, steps > 0, &sums);
    }
    if (TOLD && told->alone) told->settle(slots, sums);
    if (TOLD && told->keeps) told->collect(sums.low, odd);
  }
};

#if TOLD
#define TOLD_PARAMS , unsigned decision, unsigned node, unsigned width, unsigned merge, unsigned rate, int *sums, \
    unsigned fresh, unsigned nodes, unsigned long long *totals, unsigned turn, const unsigned *node_of, \
    unsigned by, const float *values
#else
#define TOLD_PARAMS
#endif

extern "C" __global__ void __launch_bounds__(GRU_BLOCK, GRU_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, const unsigned *table, unsigned groups, unsigned first, unsigned count,
            unsigned steps, unsigned tally, unsigned char *decisions, unsigned long long *scratch, unsigned sequence,
            unsigned long long *result TOLD_PARAMS) {
  __shared__ Shared shared;
  const Swarm swarm(pages, page_bytes, frames, layout, params, groups);
#if TOLD
  __shared__ Heard heard;
  const Nodes shares = {nodes, width, turn, totals, node_of, by, values};
  const Told of(&heard, layout, decision, node, width, merge, __uint_as_float(rate), sums, fresh != 0, shares);
  of.begin(steps);
  Dense cell(swarm, &of, &shared, table);
#else
  Dense cell(swarm, 0, &shared, table);
#endif
  const Part part = {first, count, steps, tally};
  tick(swarm, part, cell, decisions, scratch, sequence, result);
}
