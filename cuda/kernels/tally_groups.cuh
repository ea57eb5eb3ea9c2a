// What the kernels that decide many groups share: where a group's ballots are, what is stored of it, the end of the
// launch.
#pragma once

#include "tally.cuh"

struct Out {
  unsigned *winners, *leaders, *rows;
};

struct Group {
  u64 lo;
  unsigned len;
};

// Group g, cut to the ballots that there are.
__device__ __forceinline__ Group group(const unsigned *starts, unsigned size, u64 n, unsigned g) {
  u64 lo = size ? (u64)g * size : starts[g], hi = size ? lo + size : starts[g + 1];
  if (hi > n) hi = n;
  if (lo > hi) lo = hi;
  Group r;
  r.lo = lo;
  r.len = (unsigned)(hi - lo);
  return r;
}

// What is known of a group when it is counted, in the thread that stores it. Nobody asks who leads without priorities.
__device__ __forceinline__ void store(const Ask &ask, const Out &out, unsigned g, unsigned winner, unsigned votes,
                                      unsigned cast, unsigned abstain, unsigned all, u64 leader, unsigned *decided) {
  const bool met = rule_met(ask, votes, cast, all);
  *decided += met;
  out.winners[g] = met ? winner : NO_DECISION;
  if (ask.flags & TALLY_PRIORITIES) out.leaders[g] = leader ? ~(unsigned)leader : 0xffffffffu;
  if (ask.flags & TALLY_ROWS) {
    unsigned *row = out.rows + (u64)g * (ask.candidates + 2) + ask.candidates;
    row[0] = abstain;
    row[1] = all - cast - abstain;
  }
}

// Decides one group, by the thread that has its counts. Packed ballots of all ones abstain unless 16 candidates stand;
// sixteen counters have counted them as the last.
template <int K, bool HALVES>
__device__ __forceinline__ void store_planes(const Ask &ask, const Out &out, unsigned g, const Ballots<K> &b,
                                             unsigned all, u64 leader, unsigned *decided) {
  unsigned cast = 0, most = 0, winner = 0;
  unsigned *row = out.rows + (u64)g * (ask.candidates + 2);
#pragma unroll
  for (unsigned c = 0; c < K; c++) {
    if (c >= ask.candidates) continue;
    cast += b.counts[c];
    if (b.counts[c] > most) most = b.counts[c], winner = c;
    if (ask.flags & TALLY_ROWS) row[c] = b.counts[c];
  }
  const unsigned abstain = HALVES && K == 16 ? (ask.candidates < 16 ? b.counts[K - 1] : 0) : b.abstain;
  store(ask, out, g, winner, most, cast, abstain, all, leader, decided);
}

// The end of a launch, by all threads: adds up how many groups this thread has decided, and the last block closes the
// round.
__device__ __forceinline__ void finish_groups(const Ask &ask, unsigned decided, u64 *scratch, u64 *word, u64 *result) {
  __shared__ unsigned winning, values[REPLY_COUNTS];
  if (threadIdx.x == 0) winning = 0;
  __syncthreads();
  const Warp warp = whole_warp();
  decided = warp_sum(warp, decided);
  if (warp.lane == 0 && decided) atomicAdd(&winning, decided);
  __syncthreads();
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 0 && winning) atomicAdd(&scratch[TALLY_ABSTAIN], (u64)winning);
  if (!last_warp(warp, scratch)) return;
  if (warp.lane == 0) {
    u64 now;
    const bool won = elect(word, ask, &now);
    const u64 with_winner = __ldcg(&scratch[TALLY_ABSTAIN]);
    scratch[TALLY_ABSTAIN] = 0;
    values[REPLY_FLAGS] = won ? RESULT_ELECTED : 0;
    values[REPLY_WINNER] = NO_DECISION;
    values[REPLY_LEADER] = values[REPLY_PRIORITY] = values[REPLY_INVALID] = 0;
    values[REPLY_ROUND] = (unsigned)now;
    values[REPLY_ROUND_HIGH] = (unsigned)(now >> 32);
    values[REPLY_ABSTAIN] = (unsigned)with_winner;
  }
  __syncwarp(warp.mask);
  if (warp.lane < REPLY_COUNTS) reply(ask, values, warp.lane, result);
}

// Counts the ballots lo..lo+len-1 by the lanes of a warp, or by one thread alone (lane 0 of 1).
template <int K>
__device__ __forceinline__ void count_group(Ballots<K> *b, const unsigned char *ballots, u64 lo, unsigned len,
                                            unsigned lane, unsigned lanes);

// Counts groups by bit planes: a small one by a thread alone, a larger one by a warp.
template <int K, bool HALVES>
__device__ __forceinline__ void groups_planes(const Ask &ask, const unsigned char *ballots, const unsigned *starts,
                                              unsigned size, unsigned groups, const unsigned *priorities,
                                              const Out &out, unsigned *decided) {
  const Warp warp = whole_warp();
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32), id = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const unsigned span = ask.n <= (u64)groups * TALLY_LANE_BALLOTS ? 32 : 1;
  const bool led = ask.flags & TALLY_PRIORITIES;
  for (u64 base = id * span; base < groups; base += warps * span) {
    for (unsigned off = 0; off < span; off += warp.lanes) {
      const unsigned g = (unsigned)base + off + warp.lane;
      const bool mine = off + warp.lane < span && g < groups;
      Group at = {0, 0};
      if (mine) at = group(starts, size, ask.n, g);
      const bool large = mine && at.len > TALLY_LANE_BALLOTS;
      if (mine && !large) {
        Ballots<K> b;
        b.clear();
        count_group<K>(&b, ballots, at.lo, at.len, 0, 1);
        const u64 leader = led ? leader_key(priorities + at.lo, 0, at.len, 1) : 0;
        store_planes<K, HALVES>(ask, out, g, b, at.len, leader, decided);
      }
      for (unsigned left = __ballot_sync(warp.mask, large); left; left &= left - 1) {
        const int owner = __ffs(left) - 1;
        const u64 lo = __shfl_sync(warp.mask, at.lo, owner);
        const unsigned len = __shfl_sync(warp.mask, at.len, owner);
        Ballots<K> b;
        b.clear();
        count_group<K>(&b, ballots, lo, len, warp.lane, warp.lanes);
#pragma unroll
        for (int c = 0; c < K; c++) b.counts[c] = warp_sum(warp, b.counts[c]);
        b.abstain = warp_sum(warp, b.abstain);
        const u64 leader = led ? warp_max(warp, leader_key(priorities + lo, warp.lane, len, warp.lanes)) : 0;
        if (warp.lane == 0) store_planes<K, HALVES>(ask, out, (unsigned)base + off + owner, b, len, leader, decided);
      }
    }
  }
}
