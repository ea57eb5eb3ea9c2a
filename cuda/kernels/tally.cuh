// What the tally kernels share: ballots into bit planes, sums over a warp, a block and a grid, the decision. All sums
// are of integers and the leader is a maximum, so neither the launch shape nor the order of blocks matters. Ballots and
// priorities are read past the L1 cache: a resident kernel sees them change.
// Tie rule: the smallest index wins, among candidates as among leaders.
#pragma once

#include "tally_words.cuh"

typedef unsigned long long u64;

// The parameters that the tally kernels have in common; see kernels.TallyArgs.
struct Ask {
  unsigned candidates, flags, rule, of_all, num, den, sequence;
  u64 n, seen, round;
};

// The threads of a warp: the last warp of a block may have fewer than 32.
struct Warp {
  unsigned lane, lanes, mask;
};

__device__ __forceinline__ Warp this_warp() {
  Warp w;
  w.lane = threadIdx.x % 32;
  const unsigned left = blockDim.x - threadIdx.x / 32 * 32;
  w.lanes = left < 32 ? left : 32;
  w.mask = left < 32 ? (1u << left) - 1 : 0xffffffffu;
  return w;
}

// A warp of a block that has whole warps only, which the kernels below are launched with: the compiler knows the mask.
__device__ __forceinline__ Warp whole_warp() {
  Warp w;
  w.lane = threadIdx.x % 32;
  w.lanes = 32;
  w.mask = 0xffffffffu;
  return w;
}

// The sum over the warp, valid in lane 0.
__device__ __forceinline__ unsigned warp_sum(const Warp &w, unsigned v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(w.mask, v);
#else
  for (unsigned d = 16; d > 0; d /= 2) {
    const unsigned other = __shfl_down_sync(w.mask, v, d);
    if (w.lane + d < w.lanes) v += other;
  }
  return v;
#endif
}

// The largest over a whole warp, in all lanes.
__device__ __forceinline__ unsigned largest(const Warp &w, unsigned v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(w.mask, v);
#else
  for (unsigned d = 16; d > 0; d /= 2) {
    const unsigned other = __shfl_xor_sync(w.mask, v, d);
    if (other > v) v = other;
  }
  return v;
#endif
}

// The largest over the warp, valid in lane 0.
__device__ __forceinline__ u64 warp_max(const Warp &w, u64 v) {
#if __CUDA_ARCH__ >= 800
  const unsigned high = __reduce_max_sync(w.mask, (unsigned)(v >> 32));
  const unsigned low = __reduce_max_sync(w.mask, (unsigned)(v >> 32) == high ? (unsigned)v : 0u);
  return (u64)high << 32 | low;
#else
  for (unsigned d = 16; d > 0; d /= 2) {
    const u64 other = __shfl_down_sync(w.mask, v, d);
    if (w.lane + d < w.lanes && other > v) v = other;
  }
  return v;
#endif
}

// 32 ballots, a word for each of their low four bits; places that are set in none are no ballot for a candidate.
struct Planes {
  unsigned p0, p1, p2, p3, none;
};

// Four words of eight half bytes each become planes. Place 4h+k is half byte h of the k-th word, in every plane.
__device__ __forceinline__ Planes transpose(unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned ab0 = (a & 0x55555555u) | (b << 1 & 0xAAAAAAAAu), ab1 = (a >> 1 & 0x55555555u) | (b & 0xAAAAAAAAu);
  const unsigned cd0 = (c & 0x55555555u) | (d << 1 & 0xAAAAAAAAu), cd1 = (c >> 1 & 0x55555555u) | (d & 0xAAAAAAAAu);
  Planes p;
  p.p0 = (ab0 & 0x33333333u) | (cd0 << 2 & 0xCCCCCCCCu);
  p.p2 = (ab0 >> 2 & 0x33333333u) | (cd0 & 0xCCCCCCCCu);
  p.p1 = (ab1 & 0x33333333u) | (cd1 << 2 & 0xCCCCCCCCu);
  p.p3 = (ab1 >> 2 & 0x33333333u) | (cd1 & 0xCCCCCCCCu);
  p.none = 0;
  return p;
}

// 32 ballots of half a byte.
__device__ __forceinline__ Planes of_halves(uint4 u) { return transpose(u.x, u.y, u.z, u.w); }

// 32 ballots of a byte, for K candidates. Up to eight: a byte whose upper five bits are equal is known by its low four.
// More: the upper half of a byte is all zeros or all ones, and a plane of its own. Bytes of neither shape, which only
// invalid ballots have, are replaced by an invalid one that has it.
template <int K>
__device__ __forceinline__ Planes of_bytes(uint4 u, uint4 v) {
  unsigned w[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
  const unsigned upper = K <= 8 ? 0xF0F0F0F0u : 0xE0E0E0E0u, invalid = K <= 8 ? 0x08080808u : 0xF0F0F0F0u;
  unsigned mixed = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) mixed |= w[i] ^ w[i] << 1;
  if (mixed & upper) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const unsigned other = __vcmpne4((w[i] ^ w[i] << 1) & upper, 0);
      w[i] = (w[i] & ~other) | (invalid & other);
    }
  }
  unsigned half[4];
#pragma unroll
  for (int i = 0; i < 4; i++) half[i] = (w[2 * i] & 0x0F0F0F0Fu) | (w[2 * i + 1] << 4 & 0xF0F0F0F0u);
  Planes p = transpose(half[0], half[1], half[2], half[3]);
  p.none = p.p3;
  if (K > 8) {
#pragma unroll
    for (int i = 0; i < 4; i++) half[i] = (w[2 * i] >> 4 & 0x0F0F0F0Fu) | (w[2 * i + 1] & 0xF0F0F0F0u);
    p.none = (half[0] & 0x11111111u) | (half[1] & 0x22222222u) | (half[2] & 0x44444444u) | (half[3] & 0x88888888u);
  }
  return p;
}

// The places of the votes for candidate c.
__device__ __forceinline__ unsigned votes_for(const Planes &p, int c) {
  const unsigned high = (c & 8 ? p.p3 : ~p.p3) & (c & 4 ? p.p2 : ~p.p2) & ~p.none;
  return (c & 2 ? p.p1 : ~p.p1) & (c & 1 ? p.p0 : ~p.p0) & high;
}

// The places of the abstentions, which are all ones; halves is true for ballots of half a byte.
__device__ __forceinline__ unsigned abstentions(const Planes &p, bool halves) {
  const unsigned ones = p.p0 & p.p1 & p.p2 & p.p3;
  return halves ? ones : ones & p.none;
}

// What one thread has counted: votes for candidates 0..K-1, and abstentions. Every other ballot is invalid: their
// number is what is left of n.
template <int K>
struct Ballots {
  unsigned counts[K], abstain;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int c = 0; c < K; c++) counts[c] = 0;
    abstain = 0;
  }

  // Adds 32 ballots. With K = 16 a half byte of all ones is a vote.
  __device__ __forceinline__ void add(const Planes &p, bool halves) {
#pragma unroll
    for (int c = 0; c < K; c++) counts[c] += __popc(votes_for(p, c));
    if (!halves || K < 16) abstain += __popc(abstentions(p, halves));
  }

  __device__ __forceinline__ void bytes(uint4 u, uint4 v) { add(of_bytes<K>(u, v), false); }
  __device__ __forceinline__ void halves(uint4 u) { add(of_halves(u), true); }
};

#define PAD 0xFFFFFFFFu

// Up to 16 bytes from p on, filled up with bytes 0xFF. p has any alignment, and nothing behind len is read.
__device__ __forceinline__ uint4 gather(const unsigned char *p, unsigned len) {
  unsigned w[4];
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    w[i] = 0;
#pragma unroll
    for (unsigned k = 0; k < 4; k++) w[i] |= (4 * i + k < len ? (unsigned)__ldcg(p + 4 * i + k) : 0xFFu) << 8 * k;
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// How len bytes from p on split into up to 15 before the first multiple of 16, vectors of 16, and up to 15 behind.
struct Split {
  unsigned head, tail;
  u64 vectors;
  const uint4 *body;
};

__device__ __forceinline__ Split split(const unsigned char *p, u64 len) {
  Split s;
  const unsigned off = (unsigned)(16 - (u64)p % 16) % 16;
  s.head = off < len ? off : (unsigned)len;
  s.vectors = (len - s.head) / 16;
  s.tail = (unsigned)((len - s.head) % 16);
  s.body = (const uint4 *)(p + s.head);
  return s;
}

// Where a thread begins among n things, and how far its next one is: n is below 2^31.
struct Walk {
  unsigned at, step;
};

__device__ __forceinline__ Walk walk(unsigned n, unsigned block, unsigned blocks) {
  const u64 at = (u64)block * blockDim.x + threadIdx.x, step = (u64)blocks * blockDim.x;
  Walk w;
  w.at = at < n ? (unsigned)at : n;
  w.step = step < 0x10000000u ? (unsigned)step : 0x10000000u; // with more threads than that, no thread has a next one
  return w;
}

// Counts the vectors of a body by all threads that walk it: a byte or, with HALVES, half a byte a ballot. Four loads in
// flight and as few operations as can be read at full rate on an H200; rings of asynchronous copies, the bulk copy
// engine, more loads, and counting in base two were all slower there (docs/performance.md).
template <int K, bool HALVES>
__device__ __forceinline__ void count_body(const Walk &w, const uint4 *body, unsigned vectors, Ballots<K> *b) {
  unsigned i = w.at;
  const unsigned last = vectors > 3 * w.step ? vectors - 3 * w.step : 0;
  for (; i < last; i += 4 * w.step) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = __ldcg(body + i + k * w.step);
    if (HALVES) {
#pragma unroll
      for (int k = 0; k < 4; k++) b->halves(v[k]);
    } else {
      b->bytes(v[0], v[1]);
      b->bytes(v[2], v[3]);
    }
  }
  if (HALVES) {
#pragma unroll 1
    for (; i < vectors; i += w.step) b->halves(__ldcg(body + i));
  } else if (i < vectors) { // up to three
    const uint4 pad = make_uint4(PAD, PAD, PAD, PAD);
    const bool second = i + w.step < vectors, third = i + 2 * w.step < vectors;
    const uint4 v0 = __ldcg(body + i), v1 = second ? __ldcg(body + i + w.step) : pad,
        v2 = third ? __ldcg(body + i + 2 * w.step) : pad;
    b->bytes(v0, v1);
    if (third) b->bytes(v2, pad);
    b->abstain -= 16 * (third ? 1 : !second);
  }
}

// The largest key of the priorities that this thread reads: priority in the high half, ~agent in the low one.
__device__ __forceinline__ u64 leader_key(const unsigned *priorities, u64 from, u64 to, u64 step) {
  u64 best = 0;
  for (u64 i = from; i < to; i += step) {
    const u64 key = (u64)__ldcg(priorities + i) << 32 | (unsigned)~(unsigned)i;
    if (key > best) best = key;
  }
  return best;
}

// Whether votes win, of the ballots cast and of all: numbers below 2^32, so that the products of a quorum fit 64 bits.
__device__ __forceinline__ bool rule_met(const Ask &ask, unsigned votes, unsigned cast, unsigned all) {
  const unsigned base = ask.of_all ? all : cast;
  if (votes == 0) return false;
  if (ask.rule == RULE_MAJORITY) return votes > base - votes;
  if (ask.rule == RULE_UNANIMOUS) return votes == base;
  if (ask.rule == RULE_QUORUM) return (u64)votes * ask.den >= (u64)base * ask.num;
  return true;
}

// Closes the round; *word is the round word afterwards.
__device__ __forceinline__ bool elect(u64 *word, const Ask &ask, u64 *now) {
  const u64 old = ask.round > ask.seen ? atomicCAS(word, ask.seen, ask.round) : atomicAdd(word, 0ull);
  const bool won = ask.round > ask.seen && old == ask.seen;
  *now = won ? ask.round : old;
  return won;
}

// True in every thread of the block that is the last of the grid to come here; it then sees what all others have
// stored.
__device__ __forceinline__ bool last_block(u64 *scratch) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)&scratch[TALLY_TICKET], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// A result in host memory whose words may arrive in any order: each carries the sequence number of its launch in its
// low half, and the host takes the result when all of them do. So no fence stands before the last word, which would
// wait for the bus. Lanes that store neighbours store them at once.
__device__ __forceinline__ void reply(const Ask &ask, const unsigned *values, unsigned i, u64 *result) {
  *(volatile u64 *)&result[i] = (u64)values[i] << 32 | ask.sequence;
}

// What the warps of a block leave for the first of them, which ends the block's part.
struct Board {
  u64 leaders[32];
  unsigned sums[32][PLANE_CANDIDATES + 1];
  unsigned values[REPLY_COUNTS + PLANE_CANDIDATES];
};

// The words before the counts, by one thread.
__device__ __forceinline__ void head(const Ask &ask, unsigned *values, unsigned winner, unsigned votes, unsigned cast,
    unsigned abstain, u64 leader, u64 now, bool won) {
  const bool met = rule_met(ask, votes, cast, (unsigned)ask.n);
  if (!(ask.flags & TALLY_PRIORITIES)) leader = ask.n > 0 ? 0xffffffffull : 0; // all equal: agent 0
  values[REPLY_FLAGS] = (met ? RESULT_MET : 0) | (won ? RESULT_ELECTED : 0) | (leader ? RESULT_HAS_LEADER : 0);
  values[REPLY_WINNER] = met ? winner : NO_DECISION;
  values[REPLY_LEADER] = leader ? ~(unsigned)leader : 0;
  values[REPLY_PRIORITY] = (unsigned)(leader >> 32);
  values[REPLY_ROUND] = (unsigned)now;
  values[REPLY_ROUND_HIGH] = (unsigned)(now >> 32);
  values[REPLY_ABSTAIN] = abstain;
  values[REPLY_INVALID] = (unsigned)ask.n - cast - abstain;
}

// True in all lanes of the calling warp when its block is the last of the grid to come here; only that warp's stores
// before it are seen by the last one.
__device__ __forceinline__ bool last_warp(const Warp &warp, u64 *scratch) {
  __threadfence();
  __syncwarp(warp.mask);
  unsigned ticket = 0;
  if (warp.lane == 0) ticket = atomicInc((unsigned *)&scratch[TALLY_TICKET], gridDim.x - 1);
  ticket = __shfl_sync(warp.mask, ticket, 0);
  if (ticket != gridDim.x - 1) return false;
  __threadfence();
  return true;
}

// Leaves what a warp has counted on the board, and for the lanes 0..K of the first warp takes what the block has: votes
// for candidate i in lane i, abstentions in lane K. Where there are priorities, key is a leader's, or 0, and in lane 0
// it becomes the block's. The other warps have nothing to do behind it.
template <int K>
__device__ __forceinline__ unsigned gather_block(const Warp &warp, const Ballots<K> &b, bool led, u64 *key,
    Board *board) {
  const unsigned id = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
  for (int c = 0; c < K; c++) {
    const unsigned sum = warp_sum(warp, b.counts[c]);
    if (warp.lane == 0) board->sums[id][c] = sum;
  }
  const unsigned none = warp_sum(warp, b.abstain);
  if (warp.lane == 0) board->sums[id][K] = none;
  if (led) {
    const u64 best = warp_max(warp, *key);
    if (warp.lane == 0) board->leaders[id] = best;
  }
  __syncthreads();
  unsigned sum = 0;
  if (id > 0) return 0;
  if (warp.lane <= K) {
#pragma unroll 4
    for (unsigned w = 0; w < warps; w++) sum += board->sums[w][warp.lane];
  }
  if (led) *key = warp_max(warp, warp.lane < warps ? board->leaders[warp.lane] : 0);
  return sum;
}

// Decides and replies, by one warp that has the votes of candidate i in lane i; lane 0 has the rest.
__device__ __forceinline__ void decide_warp(const Warp &warp, const Ask &ask, unsigned votes, unsigned abstain,
                                            u64 leader, u64 now, bool won, unsigned *values, u64 *result) {
  const bool stands = warp.lane < ask.candidates;
  if (stands) values[REPLY_COUNTS + warp.lane] = votes;
  else votes = 0;
  const unsigned cast = warp_sum(warp, votes); // n < 2^32
  const unsigned most = largest(warp, votes);
  const unsigned first = __ffs(__ballot_sync(warp.mask, votes == most)) - 1; // the smallest index of several
  if (warp.lane == 0) head(ask, values, first, most, cast, abstain, leader, now, won);
  __syncwarp(warp.mask);
  if (warp.lane < REPLY_COUNTS + ask.candidates) reply(ask, values, warp.lane, result);
}

// The end of a launch over one electorate of up to 16 candidates: the first warp of each block adds what the block has
// counted to the grid's sums. The first warp of the last block takes the sums out of the scratch memory, which is zero
// again, decides and replies. abstains is the half byte that abstains where the counters cover it, else K or more.
// Independent accesses are under way together: each access of device memory takes half a microsecond.
template <int K>
__device__ __forceinline__ void conclude(const Ask &ask, const Ballots<K> &b, int abstains, u64 key, Board *board,
    u64 *scratch, u64 *word, u64 *result) {
  const Warp warp = whole_warp();
  const bool led = ask.flags & TALLY_PRIORITIES;
  const unsigned sum = gather_block<K>(warp, b, led, &key, board);
  if (threadIdx.x >= 32) return;
  if (sum) { // 0 in the lanes behind K
    if (warp.lane == K || (warp.lane >= ask.candidates && (int)warp.lane == abstains))
      atomicAdd(&scratch[TALLY_ABSTAIN], (u64)sum);
    else if (warp.lane < ask.candidates) atomicAdd(&scratch[TALLY_SLOTS + warp.lane], (u64)sum);
  }
  if (warp.lane == 0 && key) atomicMax(&scratch[TALLY_LEADER], key);
  if (!last_warp(warp, scratch)) return;
  u64 now = 0, abstain = 0, leader = 0;
  bool won = false;
  if (warp.lane == 0) {
    won = elect(word, ask, &now);
    abstain = __ldcg(&scratch[TALLY_ABSTAIN]);
    scratch[TALLY_ABSTAIN] = 0;
    if (led) {
      leader = __ldcg(&scratch[TALLY_LEADER]);
      scratch[TALLY_LEADER] = 0;
    }
  }
  unsigned votes = 0;
  if (warp.lane < ask.candidates) {
    votes = (unsigned)__ldcg(&scratch[TALLY_SLOTS + warp.lane]);
    scratch[TALLY_SLOTS + warp.lane] = 0;
  }
  decide_warp(warp, ask, votes, (unsigned)abstain, leader, now, won, board->values, result);
}

// The same for more candidates, whose sums are in the scratch memory: by all threads. values has room for the reply.
__device__ __forceinline__ void conclude_rows(const Ask &ask, unsigned *values, u64 *scratch, u64 *word, u64 *result) {
  __shared__ unsigned most_of[32], first_of[32], cast_of[32];
  if (!last_block(scratch)) return;
  const Warp warp = whole_warp();
  u64 now = 0, leader = 0, abstain = 0;
  bool won = false;
  if (threadIdx.x == 0) {
    won = elect(word, ask, &now);
    leader = __ldcg(&scratch[TALLY_LEADER]);
    abstain = __ldcg(&scratch[TALLY_ABSTAIN]);
    scratch[TALLY_LEADER] = scratch[TALLY_ABSTAIN] = 0;
  }
  unsigned cast = 0, most = 0, first = 0;
#pragma unroll 1
  for (unsigned c = threadIdx.x; c < ask.candidates; c += blockDim.x) { // rising, so that the first of equals stays
    const unsigned votes = (unsigned)__ldcg(&scratch[TALLY_SLOTS + c]);
    scratch[TALLY_SLOTS + c] = 0;
    *(volatile u64 *)&result[REPLY_COUNTS + c] = (u64)votes << 32 | ask.sequence;
    cast += votes;
    if (votes > most) most = votes, first = c;
  }
  // Among equal counts the smallest index: all ones less it is the largest.
  const unsigned id = threadIdx.x / 32, best = largest(warp, most), least = largest(warp, most == best ? ~first : 0);
  cast = warp_sum(warp, cast);
  if (warp.lane == 0) {
    most_of[id] = best;
    first_of[id] = least;
    cast_of[id] = cast;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const bool there = warp.lane < blockDim.x / 32;
  most = there ? most_of[warp.lane] : 0;
  cast = warp_sum(warp, there ? cast_of[warp.lane] : 0);
  const unsigned top = largest(warp, most), inverse = largest(warp, there && most == top ? first_of[warp.lane] : 0);
  if (warp.lane == 0) head(ask, values, ~inverse, top, cast, (unsigned)abstain, leader, now, won);
  __syncwarp(warp.mask);
  if (warp.lane < REPLY_COUNTS) reply(ask, values, warp.lane, result);
}

// The largest of a key and the keys of agents at..at+3.
__device__ __forceinline__ u64 key_of4(u64 best, uint4 p, u64 at) {
  const unsigned priorities[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
  for (unsigned k = 0; k < 4; k++) {
    const u64 key = (u64)priorities[k] << 32 | (unsigned)~(unsigned)(at + k);
    if (key > best) best = key;
  }
  return best;
}

// The largest key of the agents that this thread reads, of the whole electorate. priorities starts at a multiple of
// 16 bytes, as arguments do.
__device__ __forceinline__ u64 electorate_key(const Ask &ask, const unsigned *priorities, unsigned block,
    unsigned blocks) {
  if (!(ask.flags & TALLY_PRIORITIES)) return 0;
  const unsigned fours = (unsigned)(ask.n / 4);
  const Walk w = walk(fours, block, blocks);
  const uint4 *v = (const uint4 *)priorities;
  u64 best = 0;
  unsigned i = w.at;
  const unsigned last = fours > 3 * w.step ? fours - 3 * w.step : 0;
  for (; i < last; i += 4 * w.step) {
    const uint4 p0 = __ldcg(v + i), p1 = __ldcg(v + i + w.step), p2 = __ldcg(v + i + 2 * w.step),
        p3 = __ldcg(v + i + 3 * w.step);
    best = key_of4(best, p0, 4 * (u64)i);
    best = key_of4(best, p1, 4 * ((u64)i + w.step));
    best = key_of4(best, p2, 4 * ((u64)i + 2 * w.step));
    best = key_of4(best, p3, 4 * ((u64)i + 3 * w.step));
  }
#pragma unroll 1
  for (; i < fours; i += w.step) best = key_of4(best, __ldcg(v + i), 4 * (u64)i);
  const u64 rest = leader_key(priorities, 4 * (u64)fours + (u64)block * blockDim.x + threadIdx.x, ask.n,
      (u64)blocks * blockDim.x);
  return rest > best ? rest : best;
}

__device__ __forceinline__ u64 electorate_key(const Ask &ask, const unsigned *priorities) {
  return electorate_key(ask, priorities, blockIdx.x, gridDim.x);
}

// Adds the threads' keys to the grid's, by all threads.
__device__ __forceinline__ void lead(const Ask &ask, u64 key, u64 *scratch) {
  if (!(ask.flags & TALLY_PRIORITIES)) return;
  __shared__ u64 leader;
  if (threadIdx.x == 0) leader = 0;
  __syncthreads();
  const Warp warp = this_warp();
  key = warp_max(warp, key);
  if (warp.lane == 0 && key) atomicMax(&leader, key);
  __syncthreads();
  if (threadIdx.x == 0 && leader) atomicMax(&scratch[TALLY_LEADER], leader);
}

// Adds what the threads of a block have counted to the grid's sums. sums is shared memory of K+1 words. last is the
// value that abstains where the counters cover it, else K or more.
template <int K>
__device__ __forceinline__ void flush(const Ask &ask, const Ballots<K> &b, unsigned *sums, int last, u64 *scratch) {
  const Warp warp = this_warp();
  for (unsigned i = threadIdx.x; i <= K; i += blockDim.x) sums[i] = 0;
  __syncthreads();
#pragma unroll
  for (int c = 0; c < K; c++) {
    const unsigned sum = warp_sum(warp, b.counts[c]);
    if (warp.lane == 0 && sum) atomicAdd(&sums[c], sum);
  }
  const unsigned sum = warp_sum(warp, b.abstain);
  if (warp.lane == 0 && sum) atomicAdd(&sums[K], sum);
  __syncthreads();
  for (unsigned i = threadIdx.x; i <= K; i += blockDim.x) {
    if (sums[i] == 0) continue;
    if (i == K || (i >= ask.candidates && (int)i == last)) atomicAdd(&scratch[TALLY_ABSTAIN], (u64)sums[i]);
    else if (i < ask.candidates) atomicAdd(&scratch[TALLY_SLOTS + i], (u64)sums[i]);
  }
}
