// Tallies whose sums take 64 bits: of weights, and of partial tallies. The numbers of tally.cuh are below 2^32 and
// decide in one word; these do not.
#pragma once

#include "tally.cuh"
#include "tally_weighted_words.cuh"

// The sum over the warp modulo 2^64, valid in lane 0.
__device__ __forceinline__ u64 warp_sum_wide(const Warp &w, u64 v) {
#if __CUDA_ARCH__ >= 800
  const unsigned low = (1u << 27) - 1; // 32 pieces of 27 bits fit in a word
  const u64 a = warp_sum(w, (unsigned)v & low), b = warp_sum(w, (unsigned)(v >> 27) & low),
      c = warp_sum(w, (unsigned)(v >> 54));
  return a + (b << 27) + (c << 54);
#else
  for (unsigned d = 16; d > 0; d /= 2) {
    const u64 other = __shfl_down_sync(w.mask, v, d);
    if (w.lane + d < w.lanes) v += other;
  }
  return v;
#endif
}

// Whether votes win, of the ballots cast and of all: a quorum compares products of 96 bits.
__device__ __forceinline__ bool rule_met_wide(const Ask &ask, u64 votes, u64 cast, u64 all) {
  const u64 base = ask.of_all ? all : cast;
  if (votes == 0) return false;
  if (ask.rule == RULE_MAJORITY) return votes > base - votes;
  if (ask.rule == RULE_UNANIMOUS) return votes == base;
  if (ask.rule == RULE_QUORUM) {
    const u64 have = __umul64hi(votes, ask.den), need = __umul64hi(base, ask.num);
    return have > need || (have == need && votes * ask.den >= base * ask.num);
  }
  return true;
}

// The strongest candidate of the sums in scratch memory, and all votes for candidates.
struct Strongest {
  u64 votes, cast;
  unsigned winner;
};

// Takes the sums of the candidates out of the scratch memory, which is zero again, and stores them in counts. By all
// threads of one block, behind last_block; every thread gets the answer.
__device__ __forceinline__ Strongest take_counts(const Ask &ask, u64 *scratch, u64 *counts) {
  __shared__ u64 most, votes_cast, index; // index counts down from 2^64, so that the smaller of two is the larger word
  const Warp warp = this_warp();
  if (threadIdx.x == 0) most = votes_cast = index = 0;
  __syncthreads();
  u64 best = 0, mine = 0;
  for (unsigned c = threadIdx.x; c < ask.candidates; c += blockDim.x) {
    const u64 votes = __ldcg(&scratch[TALLY_SLOTS + c]);
    mine += votes;
    if (votes > best) best = votes;
  }
  best = warp_max(warp, best);
  mine = warp_sum_wide(warp, mine);
  if (warp.lane == 0 && threadIdx.x < ask.candidates) {
    atomicMax(&most, best);
    atomicAdd(&votes_cast, mine);
  }
  __syncthreads();
  for (unsigned c = threadIdx.x; c < ask.candidates; c += blockDim.x) {
    const u64 votes = __ldcg(&scratch[TALLY_SLOTS + c]);
    scratch[TALLY_SLOTS + c] = 0;
    counts[c] = votes;
    if (votes == most) atomicMax(&index, ~(u64)c);
  }
  __syncthreads();
  const Strongest s = {most, votes_cast, (unsigned)~index};
  return s;
}

// The first words of a weighted result, from the sums of the launch.
struct Outcome {
  u64 flags, votes, cast, total, abstain, bad, leader, now;
  unsigned winner;

  __device__ __forceinline__ void decide(const Ask &ask, bool won) {
    if (!(ask.flags & TALLY_PRIORITIES)) leader = ask.n > 0 ? 0xffffffffull : 0; // all equal: agent 0
    const bool met = rule_met_wide(ask, votes, cast, total);
    if (!met) winner = NO_DECISION;
    flags = (met ? RESULT_MET : 0) | (won ? RESULT_ELECTED : 0) | (leader ? RESULT_HAS_LEADER : 0);
  }

  __device__ __forceinline__ u64 word(const Ask &ask, unsigned i) const {
    if (i == RESULT_DONE) return flags << 32 | ask.sequence;
    if (i == RESULT_WINNER) return (leader ? (u64)(~(unsigned)leader) << 32 : 0) | winner;
    if (i == RESULT_PRIORITY) return leader >> 32;
    if (i == RESULT_ROUND) return now;
    if (i == RESULT_TOTAL) return total;
    if (i == RESULT_ABSTAIN) return abstain;
    if (i == RESULT_INVALID) return total - cast - abstain;
    return bad;
  }
};

// Decides and stores the result, by one warp of the last block; K candidates at most, K <= 8. Lane i takes the sum in
// word at of the scratch memory, which is zero again: candidates in the first lanes, abstentions, everything and bad
// weights in lanes K..K+2, the leader in the last one; at is negative in the others. What is independent is under way
// together.
__device__ __forceinline__ void finish_warp(const Warp &warp, const Ask &ask, int at, int K, u64 *scratch, u64 *word,
    u64 *result) {
  Outcome o;
  u64 now = 0, v = 0;
  bool won = false;
  if (warp.lane == 0) won = elect(word, ask, &now);
  if (at >= 0) {
    v = __ldcg(&scratch[at]);
    scratch[at] = 0;
  }
  const bool stands = warp.lane < ask.candidates;
  const u64 votes = stands ? v : 0;
  o.cast = __shfl_sync(warp.mask, warp_sum_wide(warp, votes), 0);
  o.votes = __shfl_sync(warp.mask, warp_max(warp, votes), 0);
  o.winner = __ffs(__ballot_sync(warp.mask, stands && votes == o.votes)) - 1; // the smallest index
  o.abstain = __shfl_sync(warp.mask, v, K);
  o.total = __shfl_sync(warp.mask, v, K + 1);
  o.bad = __shfl_sync(warp.mask, v, K + 2);
  o.leader = __shfl_sync(warp.mask, v, 31);
  o.now = __shfl_sync(warp.mask, now, 0);
  o.decide(ask, __shfl_sync(warp.mask, (unsigned)won, 0) != 0);
  const u64 count = __shfl_sync(warp.mask, v, warp.lane < RESULT_COUNTS ? 0 : warp.lane - RESULT_COUNTS);
  const u64 mine = warp.lane < RESULT_COUNTS ? o.word(ask, warp.lane) : count;
  // neighbours at once
  if (warp.lane != RESULT_DONE && warp.lane < RESULT_COUNTS + ask.candidates) result[warp.lane] = mine;
  __syncwarp(warp.mask);
  if (warp.lane != RESULT_DONE) return;
  __threadfence_system(); // covers what the warp stored before
  *(volatile u64 *)&result[RESULT_DONE] = mine;
}

// The same for more candidates, by all threads of all blocks.
__device__ __forceinline__ void finish_wide(const Ask &ask, u64 *scratch, u64 *word, u64 *result) {
  if (!last_block(scratch)) return;
  Outcome o;
  bool won = false;
  if (threadIdx.x == 0) {
    won = elect(word, ask, &o.now);
    o.leader = __ldcg(&scratch[TALLY_LEADER]);
    o.abstain = __ldcg(&scratch[TALLY_ABSTAIN]);
    o.total = __ldcg(&scratch[TALLY_WEIGHT]);
    o.bad = __ldcg(&scratch[TALLY_BAD]);
    scratch[TALLY_LEADER] = scratch[TALLY_ABSTAIN] = scratch[TALLY_WEIGHT] = scratch[TALLY_BAD] = 0;
  }
  const Strongest s = take_counts(ask, scratch, result + RESULT_COUNTS);
  if (threadIdx.x != 0) return;
  o.votes = s.votes, o.cast = s.cast, o.winner = s.winner;
  o.decide(ask, won);
#pragma unroll
  for (unsigned i = 0; i < RESULT_COUNTS; i++)
    if (i != RESULT_DONE) result[i] = o.word(ask, i);
  __threadfence_system(); // covers what the block stored before the barrier too
  *(volatile u64 *)&result[RESULT_DONE] = o.word(ask, RESULT_DONE);
}
