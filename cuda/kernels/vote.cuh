// One round's vote of one group, in shared memory. All sums are of integers, so neither the order of the agents nor the
// number of threads matters. Tie rule: the smallest index wins, among candidates as among leaders.
#pragma once

#include "decide.cuh"

struct Tally {
  unsigned counts[VOTE_CANDIDATES];
  unsigned total;                // weight of all agents
  unsigned long long leader;     // priority in the high half, ~agent in the low one: the largest leads
};

// What one thread's agents add to the tally.
struct Ballots {
  unsigned counts[VOTE_CANDIDATES];
  unsigned total;
  unsigned long long leader;

  __device__ __forceinline__ void clear() {
    for (int c = 0; c < VOTE_CANDIDATES; c++) counts[c] = 0;
    total = 0;
    leader = 0;
  }
  __device__ __forceinline__ void vote(unsigned agent, unsigned candidate, unsigned count, unsigned weight,
      unsigned priority) {
    for (int c = 0; c < VOTE_CANDIDATES; c++) counts[c] += candidate == c ? count : 0;
    total += weight;
    unsigned long long key = (unsigned long long)priority << 32 | (unsigned)~agent;
    if (key > leader) leader = key;
  }
};

__device__ __forceinline__ void clear_tally(Tally *t) {
  for (int c = 0; c < VOTE_CANDIDATES; c++) t->counts[c] = 0;
  t->total = 0;
  t->leader = 0;
}

// Adds a thread's ballots to the tally. All threads of the block call it. Whole warps add up among themselves first; a
// block whose last warp is not full adds thread by thread, to the same result.
__device__ __forceinline__ void cast(Tally *t, Ballots b) {
  bool speaks = true;
  if (blockDim.x % 32 == 0) {
    for (int d = 16; d > 0; d /= 2) {
      for (int c = 0; c < VOTE_CANDIDATES; c++) b.counts[c] += __shfl_down_sync(0xffffffffu, b.counts[c], d);
      b.total += __shfl_down_sync(0xffffffffu, b.total, d);
      unsigned long long other = __shfl_down_sync(0xffffffffu, b.leader, d);
      if (other > b.leader) b.leader = other;
    }
    speaks = threadIdx.x % 32 == 0;
  }
  if (speaks) {
    for (int c = 0; c < VOTE_CANDIDATES; c++)
      if (b.counts[c]) atomicAdd(&t->counts[c], b.counts[c]);
    atomicAdd(&t->total, b.total);
    atomicMax(&t->leader, b.leader);
  }
}

__device__ __forceinline__ unsigned leader_of(const Tally *t) { return ~(unsigned)t->leader; }

// The outcome under a rule; agents without weight have no vote.
__device__ __forceinline__ unsigned decide(const Tally *t, unsigned rule, unsigned quorum) {
  return decision(t->counts, VOTE_CANDIDATES, rule, quorum);
}

// Advances a group's round by one compare-and-swap and returns the new round.
__device__ __forceinline__ unsigned long long elect_round(unsigned long long *round, unsigned long long seen) {
  atomicCAS(round, seen, seen + 1);
  return seen + 1;
}
