// tally_weighted_u8_w32_5 and its like are tally_u8_5 and its like for ballots that have weights, for up to eight
// candidates; see kernels.TallyWeightedArgs. With weights of a byte four ballots become the selector of a byte
// permutation, which makes a word of zeros and ones for each candidate, and a dot product multiplies that with four
// weights and adds. With weights of 32 bits a ballot is an addition to a word of shared memory that is the thread's
// own: half the instructions of dot products of their halves, and as many for five candidates as for eight. Sums are of
// integers, so no order matters.
// Sums of 32 bits go to sums of 64 bits before they can overflow.
#include "tally_weights.cuh"

#ifndef TALLY
#define TALLY tally_weighted_u8_w32_8
#define NIBBLES 0
#define WEIGHTS WEIGHT_U32
#define PLANES 8
#endif

// How many ballots a thread counts before its sums could overflow. Tests make it small.
#ifndef REGISTER_BALLOTS
#define REGISTER_BALLOTS (WEIGHTS == WEIGHT_U8 ? 1u << 24 : 1u << 16)
#endif
static_assert((REGISTER_BALLOTS) * (WEIGHTS == WEIGHT_U8 ? 255ull : 65535ull) + 65535 < 1ull << 32,
    "a thread's sum overflows");

// After how many rounds of 16 ballots at most a thread carries from low halves to high ones, where whole weights of up
// to 2^23 were added to the low ones. Tests make it small.
#ifndef CARRY_ROUNDS
#define CARRY_ROUNDS 16
#endif
static_assert(CARRY_ROUNDS * 16ull * (1 << 23) + 65535 < 1ull << 32, "a low half overflows");

// The bytes of b:a that the four half bytes of select say, low three bits; with the highest bit only the sign of that
// byte.
__device__ __forceinline__ unsigned permute(unsigned a, unsigned b, unsigned select) {
  unsigned r;
#ifdef __CUDA_ARCH__
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
#else
  r = 0;
  for (unsigned k = 0; k < 32; k += 8) {
    const unsigned s = select >> k / 2 & 15, byte = (s & 4 ? b : a) >> 8 * (s & 3) & 0xFF;
    r |= (s < 8 ? byte : (byte & 0x80 ? 0xFFu : 0u)) << k;
  }
#endif
  return r;
}

// The sums of one thread with weights of a byte: K candidates and abstentions, and everything.
template <int K>
struct Dots {
  unsigned sums[K + 1], total;

  __device__ __forceinline__ Dots(unsigned *) { clear(); }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int c = 0; c <= K; c++) sums[c] = 0;
    total = 0;
  }

  // One where a half byte of select is c < 8, or with K all ones.
  __device__ __forceinline__ static unsigned who(int c, unsigned select) {
    if (c == K) return permute(0, 0x80000000u, select) & 0x01010101u;
    return c < 4 ? permute(1u << 8 * (c & 3), 0, select) : permute(0, 1u << 8 * (c & 3), select);
  }

  // Four ballots in the low half of select.
  __device__ __forceinline__ void add(unsigned select, unsigned w) {
#pragma unroll
    for (int c = 0; c <= K; c++) sums[c] = dot4(who(c, select), w, sums[c]);
    total = dot4(0x01010101u, w, total);
  }

  // The sums of candidates 0..K-1, abstentions, everything.
  __device__ __forceinline__ void take(u64 *all) const {
#pragma unroll
    for (int c = 0; c <= K; c++) all[c] = sums[c];
    all[K + 1] = total;
  }
};

// The sums of one thread with weights of 32 bits, in a column of the table of its warp: rows of low halves, of
// abstentions, of candidates 0..K-1 and of invalid ballots, and then as many of high halves. Lanes never meet in a
// bank.
template <int K>
struct Column {
  enum { ROWS = K + 2, WORDS = 2 * ROWS * 32 }; // of a warp

  unsigned *own;
  unsigned rounds; // since the last carry

  __device__ __forceinline__ Column(unsigned *table) : own(table + threadIdx.x / 32 * WORDS + threadIdx.x % 32) {
    clear();
  }
  __device__ __forceinline__ void clear() {
    rounds = 0;
#pragma unroll
    for (int r = 0; r < 2 * ROWS; r++) own[32 * r] = 0;
  }

  // The row of the ballot in byte or half byte k of b: one more than the ballot, so the row of an abstention, all ones,
  // is zero.
  __device__ __forceinline__ unsigned *row(unsigned b, int k) const {
    const int BITS = NIBBLES ? 4 : 8, TOP = 32 - BITS;
    const unsigned next = (b << (TOP - BITS * k)) + (1u << TOP), last = (unsigned)(ROWS - 1) << TOP;
    return own + 32 * ((next < last ? next : last) >> TOP);
  }

  __device__ __forceinline__ void add_halves(unsigned b, int k, unsigned w) {
    unsigned *at = row(b, k);
    atomicAdd(at, w & 0xFFFF);
    atomicAdd(at + 32 * ROWS, w >> 16);
  }

  // With weights of at most 2^23, which go to the low half until the next carry.
  __device__ __forceinline__ void add_small(unsigned b, int k, unsigned w) { atomicAdd(row(b, k), w); }
  __device__ __forceinline__ void carry() {
    rounds = 1; // the one that follows
#pragma unroll 1
    for (int r = 0; r < ROWS; r++) {
      const unsigned v = own[32 * r];
      own[32 * r] = v & 0xFFFF;
      own[32 * (ROWS + r)] += v >> 16;
    }
  }

  __device__ __forceinline__ u64 sum(int r) const { return own[32 * r] + ((u64)own[32 * (ROWS + r)] << 16); }
  __device__ __forceinline__ void take(u64 *all) const {
    all[K + 1] = sum(ROWS - 1);
#pragma unroll
    for (int c = 0; c <= K; c++) {
      all[c] = sum(c < K ? c + 1 : 0);
      all[K + 1] += all[c];
    }
  }
};

#if WEIGHTS == WEIGHT_U8
typedef Dots<PLANES> Weighed;
#else
typedef Column<PLANES> Weighed;
#endif

// Two words of four ballots become eight half bytes: a is in the low halves of bytes.
__device__ __forceinline__ unsigned halve(unsigned a, unsigned b) { return (a & 0x0F0F0F0Fu) | (b << 4 & 0xF0F0F0F0u); }

// A byte whose upper five bits are equal is known by its low four. Bytes that are not so, which only invalid ballots
// are, are replaced by an invalid one that is.
template <int FLIGHT>
__device__ __forceinline__ void normalize(Unit<NIBBLES, WEIGHTS> *u) {
  if (NIBBLES) return;
  const int WORDS = Source<NIBBLES, WEIGHTS>::WORDS;
  unsigned mixed = 0;
#pragma unroll
  for (int f = 0; f < FLIGHT; f++)
#pragma unroll
    for (int k = 0; k < WORDS; k++) mixed |= u[f].ballots[k] ^ u[f].ballots[k] << 1;
  if (!(mixed & 0xF0F0F0F0u)) return;
#pragma unroll
  for (int f = 0; f < FLIGHT; f++)
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
      const unsigned b = u[f].ballots[k], other = __vcmpne4((b ^ b << 1) & 0xF0F0F0F0u, 0);
      u[f].ballots[k] = (b & ~other) | (0x08080808u & other);
    }
}

// Counts some units.
template <int FLIGHT>
__device__ __forceinline__ void weigh(Unit<NIBBLES, WEIGHTS> *u, Weighed *t, unsigned *bad) {
#if WEIGHTS == WEIGHT_U8
  normalize<FLIGHT>(u);
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    const uint4 v = u[f].weights;
    const unsigned *b = u[f].ballots;
    const int WORDS = Source<NIBBLES, WEIGHTS>::WORDS;
    if (NIBBLES) {
      t->add(b[0], v.x);
      t->add(b[0] >> 16, v.y);
      t->add(b[WORDS > 1 ? 1 : 0], v.z);
      t->add(b[WORDS > 1 ? 1 : 0] >> 16, v.w);
    } else { // the weights in the order of the half bytes
      const unsigned x = halve(b[0], b[WORDS > 1 ? 1 : 0]), y = halve(b[WORDS > 2 ? 2 : 0], b[WORDS > 3 ? 3 : 0]);
      t->add(x, __byte_perm(v.x, v.y, 0x5140));
      t->add(x >> 16, __byte_perm(v.x, v.y, 0x7362));
      t->add(y, __byte_perm(v.z, v.w, 0x5140));
      t->add(y >> 16, __byte_perm(v.z, v.w, 0x7362));
    }
  }
#else
  if (WEIGHTS == WEIGHT_F32) {
    if (t->rounds++ == CARRY_ROUNDS) t->carry();
    if (fix_weights<NIBBLES, WEIGHTS, FLIGHT>(u, bad)) {
#pragma unroll
      for (int f = 0; f < FLIGHT; f++) {
        const unsigned w[4] = {u[f].weights.x, u[f].weights.y, u[f].weights.z, u[f].weights.w};
#pragma unroll
        for (int k = 0; k < 4; k++) t->add_small(u[f].ballots[0], k, w[k]);
      }
      return;
    }
  }
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    const unsigned w[4] = {u[f].weights.x, u[f].weights.y, u[f].weights.z, u[f].weights.w};
#pragma unroll
    for (int k = 0; k < 4; k++) t->add_halves(u[f].ballots[0], k, w[k]);
  }
#endif
}

// What the warps of a block leave for the first of them: K candidates, abstentions, everything, bad weights.
struct WideBoard {
  u64 leaders[TALLY_THREADS / 32];
  u64 sums[TALLY_THREADS / 32][PLANES + 3];
};

// Where lane i of the first warp adds sum i; nothing for a candidate that does not stand, and the leader in the last
// lane.
__device__ __forceinline__ int place(const Ask &ask, unsigned lane) {
  if (lane < ask.candidates) return TALLY_SLOTS + lane;
  if (lane == PLANES) return TALLY_ABSTAIN;
  if (lane == PLANES + 1) return TALLY_WEIGHT;
  if (lane == PLANES + 2) return TALLY_BAD;
  return lane == 31 ? TALLY_LEADER : -1;
}

// Leaves the warp's sums t, PLANES+2 a thread, on the board. A sum is added in pieces of 27 bits: 32 pieces do not
// overflow a word. The highest piece is zero but for few threads with many ballots.
__device__ __forceinline__ void leave(const Warp &warp, const u64 *t, unsigned bad, u64 key, WideBoard *board) {
  const unsigned id = threadIdx.x / 32, low = (1u << 27) - 1;
  const int HIGH = WEIGHTS == WEIGHT_U8 ? 27 : 54;
  u64 high = 0;
#pragma unroll
  for (int i = 0; i < PLANES + 2; i++) high |= t[i] >> HIGH;
  const bool large = __ballot_sync(warp.mask, high != 0) != 0;
#pragma unroll
  for (int i = 0; i < PLANES + 2; i++) {
    const u64 v = t[i];
    u64 sum = warp_sum(warp, (unsigned)v & low);
    if (WEIGHTS != WEIGHT_U8) sum += (u64)warp_sum(warp, (unsigned)(v >> 27) & low) << 27;
    if (large) sum += (u64)warp_sum(warp, (unsigned)(v >> HIGH)) << HIGH;
    if (warp.lane == 0) board->sums[id][i] = sum;
  }
  bad = WEIGHTS == WEIGHT_F32 ? warp_sum(warp, bad) : 0;
  key = warp_max(warp, key);
  if (warp.lane == 0) {
    board->sums[id][PLANES + 2] = bad;
    board->leaders[id] = key;
  }
}

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *priorities, unsigned flags, unsigned rule, unsigned of_all, unsigned num, unsigned den,
      unsigned long long seen, unsigned long long round, unsigned sequence, unsigned long long *scratch,
      unsigned long long *word, unsigned long long *result, const uint4 *weights) {
  typedef Source<NIBBLES, WEIGHTS> S;
  __shared__ WideBoard board;
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  const Warp warp = whole_warp();
  const u64 key = electorate_key(ask, priorities);
  const S s(ballots + first, weights, n);
#if WEIGHTS == WEIGHT_U8
  Weighed t(0);
#else
  __shared__ unsigned table[TALLY_THREADS / 32 * Weighed::WORDS];
  Weighed t(table);
#endif
  u64 sums[PLANES + 2];
  unsigned bad = 0;
  const Walk w = walk(s.units, blockIdx.x, gridDim.x);
  const u64 span = (u64)(REGISTER_BALLOTS / (S::BALLOTS * S::FLIGHT) - 1) * S::FLIGHT * w.step; // one less: the rest
  unsigned i = w.at;
  while (i < s.units) {
    const unsigned stop = i + span < s.units ? (unsigned)(i + span) : s.units;
#pragma unroll 1
    for (; i < stop; i += S::FLIGHT * w.step) {
      Unit<NIBBLES, WEIGHTS> u[S::FLIGHT];
      load_units<NIBBLES, WEIGHTS>(s, i, w.step, stop, u);
      weigh<S::FLIGHT>(u, &t, &bad);
    }
    if (i >= s.units) break;
    t.take(sums);
#pragma unroll
    for (unsigned c = 0; c < PLANES + 2; c++)
      if (place(ask, c) >= 0) atomicAdd(&scratch[place(ask, c)], sums[c]);
    t.clear();
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < s.rest) {
    Unit<NIBBLES, WEIGHTS> u;
    u.single(s, threadIdx.x);
    weigh<1>(&u, &t, &bad);
  }
  t.take(sums);
  leave(warp, sums, bad, key, &board);
  __syncthreads();
  if (threadIdx.x >= 32) return;
  u64 sum = 0;
  const unsigned warps = blockDim.x / 32;
  if (warp.lane < PLANES + 3) {
#pragma unroll 4
    for (unsigned k = 0; k < warps; k++) sum += board.sums[k][warp.lane];
  }
  const int at = place(ask, warp.lane);
  const u64 leader = __shfl_sync(warp.mask, warp_max(warp, warp.lane < warps ? board.leaders[warp.lane] : 0), 0);
  if (warp.lane == 31 && leader) atomicMax(&scratch[TALLY_LEADER], leader);
  else if (at >= 0 && sum) atomicAdd(&scratch[at], sum);
  if (last_warp(warp, scratch)) finish_warp(warp, ask, at, PLANES, scratch, word, result);
}
