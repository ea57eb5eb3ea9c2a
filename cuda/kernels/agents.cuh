// What the kernels of agent-addressed cells share: where state stands, spans of groups, decisions, the swarm's tally.
// See agents.go.
// Blocks are whole warps.
#pragma once

#include "agents_words.cuh"
#include "decide.cuh"
#include "fma.cuh"

#ifndef SWARM_VARS
#define SWARM_VARS (AGENT_VAR_ROW + 1) // variables that the kernel asks for
#endif

typedef unsigned long long u64;

// The elements of state, in words of 32 bits.
struct F32 {
  enum { BYTES = 4 };
  static __device__ __forceinline__ void unpack(float *to, const unsigned *from, int n) {
#pragma unroll
    for (int k = 0; k < n; k++) to[k] = __uint_as_float(from[k]);
  }
  // Values become what is stored.
  static __device__ __forceinline__ void pack(unsigned *to, float *from, int n) {
#pragma unroll
    for (int k = 0; k < n; k++) to[k] = __float_as_uint(from[k]);
  }
};

// bf16, of a pair the even element in the low half. Values to be packed are finite.
struct BF16 {
  enum { BYTES = 2 };
  static __device__ __forceinline__ void unpack(float *to, const unsigned *from, int n) {
#pragma unroll
    for (int k = 0; k < n; k += 2)
      to[k] = __uint_as_float(from[k / 2] << 16), to[k + 1] = __uint_as_float(from[k / 2] & 0xffff0000u);
  }
  static __device__ __forceinline__ unsigned half(float v) {
    const unsigned u = __float_as_uint(v);
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  }
  static __device__ __forceinline__ void pack(unsigned *to, float *from, int n) {
#pragma unroll
    for (int k = 0; k < n; k += 2) {
#if __CUDA_ARCH__ >= 800
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(to[k / 2]) : "f"(from[k + 1]), "f"(from[k]));
#else
      to[k / 2] = half(from[k]) | half(from[k + 1]) << 16;
#endif
    }
    unpack(from, to, n);
  }
};

// The swarm as a kernel sees it.
struct Swarm {
  unsigned char *pages, *host; // frames on the device, and in host memory; of the latter only sparse launches know
  u64 page_bytes;
  const unsigned *frames; // by page: its frame, of no meaning for a page that the launch has nothing to do with
  const unsigned *params;
  unsigned offsets[SWARM_VARS], agents, slots, groups, candidates; // agents a group, groups a page and of the swarm
  unsigned inverse; // 2^32 over agents

  __device__ __forceinline__ Swarm(unsigned char *p, u64 bytes, const unsigned *table, const unsigned *layout,
      const unsigned *words, unsigned n, unsigned char *h = 0)
      : pages(p), host(h), page_bytes(bytes), frames(table), params(words), agents(layout[0]), slots(layout[1]),
          groups(n), candidates(words[AGENT_CANDIDATES]) {
    for (int v = 0; v < SWARM_VARS; v++) offsets[v] = layout[2 + v];
    inverse = 0xffffffffu / agents;
  }

  // The group of agent i of a span, i < 2^23: the estimate is one less at most.
  __device__ __forceinline__ unsigned group(unsigned i) const {
    const unsigned g = __umulhi(i, inverse);
    return g + (i - g * agents >= agents);
  }

  // Where a page is by its entry in frames. One in host memory is stepped there, over the bus: additions to it are
  // atomic among the threads of this device, and nobody else reads it before the launch has ended.
  __device__ __forceinline__ unsigned char *at(unsigned entry) const {
    return (entry >> AGENT_HOST_BIT ? host : pages) + (entry & (1u << AGENT_HOST_BIT) - 1) * page_bytes;
  }
  // In a page that is so in the memory of the device, by its frame, or anywhere, by where it is.
  __device__ __forceinline__ unsigned char *variable(unsigned frame, unsigned v) const {
    return variable(pages + frame * page_bytes, v);
  }
  __device__ __forceinline__ unsigned char *variable(unsigned char *page, unsigned v) const {
    return page + offsets[v];
  }
  template <class Page> __device__ __forceinline__ u64 *round(Page page, unsigned slot) const {
    return (u64 *)variable(page, AGENT_VAR_ROUND) + slot;
  }
  template <class Page> __device__ __forceinline__ unsigned *counts(Page page, unsigned slot) const {
    return (unsigned *)variable(page, AGENT_VAR_COUNTS) + slot * candidates;
  }
  __device__ __forceinline__ unsigned char decide(const unsigned *counts) const {
    return (unsigned char)decision(counts, candidates, params[AGENT_RULE], params[AGENT_QUORUM]);
  }
};

// Whole groups of one page that a block steps at once.
struct Span {
  // the frame of the page, its first slot there, how many, the first of them in the swarm
  unsigned frame, slot, groups, first;
};

// The pages that a tick steps, how often, and what it does with the votes: AGENT_TICK_*.
struct Part {
  unsigned first, count, steps, votes;
};

// Span number u of the pages of a part that have per spans of size groups each; behind the last one it is of no groups.
__device__ __forceinline__ Span span_of(const Swarm &s, const Part &part, unsigned u, unsigned per, unsigned size) {
  Span r = {0, 0, 0, 0};
  if (u >= part.count * per) return r;
  const unsigned page = part.first + u / per;
  r.frame = s.frames[page];
  r.slot = u % per * size;
  r.first = page * s.slots + r.slot;
  r.groups = s.slots - r.slot < size ? s.slots - r.slot : size;
  const unsigned left = r.first < s.groups ? s.groups - r.first : 0;
  if (left < r.groups) r.groups = left;
  return r;
}

// Steps all agents of a part. A Cell has SPAN, the agents of a span if groups are small, open(), which all threads call
// first, and step(span, next, steps, counts), which steps the agents of a span so often and adds their last votes to
// counts, [groups][candidates]; next is the block's next span, of no groups at the end. Where TOLD_STEPS is not 0, the
// agents of a span are told what they hear of their groups before, and steps is 1; keep() follows. Of no steps, tell()
// adds them up, or where adds() says so step() and keep() do.
template <class Cell>
__device__ __forceinline__ void tick(const Swarm &s, const Part &part, Cell &cell, unsigned char *decisions,
    u64 *scratch, unsigned sequence, u64 *result) {
  __shared__ unsigned counts[AGENT_SPAN_GROUPS * AGENT_MOST_CANDIDATES], sums[AGENT_MOST_CANDIDATES];
  __shared__ bool last;
  const unsigned C = s.candidates;
  for (unsigned i = threadIdx.x; i < AGENT_SPAN_GROUPS * AGENT_MOST_CANDIDATES; i += blockDim.x) counts[i] = 0;
  if (threadIdx.x < AGENT_MOST_CANDIDATES) sums[threadIdx.x] = 0;
  // A span begins at a multiple of four agents: so does every group, or every fourth one.
  const unsigned grain = s.agents % 4 ? 4 : 1;
  unsigned size = ((Cell::SPAN - 1) / s.agents + grain) & ~(grain - 1);
  if (size > AGENT_SPAN_GROUPS) size = AGENT_SPAN_GROUPS;
  const unsigned per = (s.slots + size - 1) / size, units = part.count * per;
  Span now = span_of(s, part, blockIdx.x, per, size);
  cell.open(now);
  __syncthreads();
  for (unsigned u = blockIdx.x; u < units; u += gridDim.x) {
    const Span next = span_of(s, part, u + gridDim.x, per, size);
    if (Cell::TOLD_STEPS) cell.tell(now, part.steps);
    const bool moves = !Cell::TOLD_STEPS || part.steps > 0;
    if (!moves && !cell.adds()) { // the agents of the span are added up
      now = next;
      continue;
    }
    if (part.steps == 1 || Cell::TOLD_STEPS)
      cell.template step<false>(now, next, Cell::TOLD_STEPS ? part.steps : 1, counts);
    else
      cell.template step<true>(now, next, part.steps, counts);
    __syncthreads();
    if (Cell::TOLD_STEPS) cell.keep(now, part.steps, u / gridDim.x, size * s.agents, next.groups == 0);
    for (unsigned g = threadIdx.x; moves && g < now.groups; g += blockDim.x) {
      unsigned *mine = counts + g * C, *kept = s.counts(now.frame, now.slot + g);
      decisions[now.first + g] = s.decide(mine);
      *s.round(now.frame, now.slot + g) += part.steps;
      for (unsigned c = 0; c < C; c++) {
        kept[c] = mine[c];
        if (mine[c]) atomicAdd(&sums[c], mine[c]);
        mine[c] = 0;
      }
    }
    __syncthreads();
    now = next;
  }
  if (part.votes != AGENT_TICK_SILENT && threadIdx.x < C && sums[threadIdx.x])
    atomicAdd(&scratch[AGENT_SUM + threadIdx.x], (u64)sums[threadIdx.x]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)&scratch[AGENT_TICKET], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  __threadfence();
  for (unsigned c = 0; c < C && part.votes == AGENT_TICK_PUBLISH; c++) {
    result[AGENT_RESULT_TALLY + c] = scratch[AGENT_TALLY + c] = __ldcg(&scratch[AGENT_SUM + c]);
    scratch[AGENT_SUM + c] = 0;
  }
  const u64 first = (u64)part.first * s.slots, end = first + (u64)part.count * s.slots;
  result[AGENT_STEPPED] = ((end < s.groups ? end : s.groups) - first) * s.agents * part.steps;
  result[AGENT_OUTSIDE] = result[AGENT_REFUSED] = 0;
  __threadfence_system();
  *(volatile u64 *)&result[AGENT_DONE] = sequence;
}

// How many observations a sparse launch has: what it was told, or what its head says, of a launch that was recorded.
__device__ __forceinline__ unsigned counted(unsigned count, const unsigned *head) {
  return count == AGENT_HEADED ? head[0] : count;
}

// Where an addressed agent is.
struct Place {
  unsigned char *page;
  unsigned slot, at; // its group's slot, the agent in the page
};

__device__ __forceinline__ Place place(const Swarm &s, unsigned agent) {
  const unsigned group = agent / s.agents, page = group / s.slots;
  Place p;
  p.page = s.at(s.frames[page]);
  p.slot = group - page * s.slots;
  p.at = agent - page * s.slots * s.agents;
  return p;
}

// What the threads of a block have counted of a sparse launch.
struct Sparse {
  int tally[AGENT_MOST_CANDIDATES];
  unsigned stepped, outside, refused;
};

__device__ __forceinline__ void open_sparse(Sparse *b) {
  if (threadIdx.x < AGENT_MOST_CANDIDATES) b->tally[threadIdx.x] = 0;
  if (threadIdx.x == 0) b->stepped = b->outside = b->refused = 0;
  __syncthreads();
}

// Replaces the vote of an agent, old, by candidate best.
__device__ __forceinline__ void revote(const Swarm &s, Sparse *b, const Place &p, unsigned char *vote, unsigned old,
    unsigned best) {
  if (old == best + 1) return;
  *vote = (unsigned char)(best + 1);
  unsigned *counts = s.counts(p.page, p.slot);
  atomicAdd(&counts[best], 1u);
  atomicAdd(&b->tally[best], 1);
  if (old - 1 >= s.candidates) return; // 0, or what no kernel has written
  atomicAdd(&counts[old - 1], 0xffffffffu);
  atomicAdd(&b->tally[old - 1], -1);
}

__device__ __forceinline__ void close_sparse(const Swarm &s, const Sparse *b, u64 *scratch) {
  __syncthreads();
  if (threadIdx.x < s.candidates && b->tally[threadIdx.x])
    atomicAdd(&scratch[AGENT_TALLY + threadIdx.x], (u64)(long long)b->tally[threadIdx.x]);
  if (threadIdx.x != 0) return;
  if (b->stepped) atomicAdd(&scratch[AGENT_STEPPED], (u64)b->stepped);
  if (b->outside) atomicAdd(&scratch[AGENT_OUTSIDE], (u64)b->outside);
  if (b->refused) atomicAdd(&scratch[AGENT_REFUSED], (u64)b->refused);
}

// An input as it is held, at most limit of either sign; *odd becomes true of one that is not finite.
__device__ __forceinline__ float held(float v, float limit, bool *odd) {
  if ((__float_as_uint(v) & 0x7f800000u) == 0x7f800000u) *odd = true;
  return v > limit ? limit : (v < -limit ? -limit : v);
}
