// What the tallies of ballots with weights share: how a thread reads ballots and weights. PACKED ballots are half a
// byte each, KIND is the kind of the weights. Loads go past the L1 cache, which holds nothing that is read twice.
#pragma once

#include "tally_wide.cuh"

// The dot product of PTX of four bytes, by which c grows. Not by the name of the toolkit, which NVRTC of CUDA 11 does
// not know.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ unsigned dot4(unsigned a, unsigned b, unsigned c) {
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
#else // emulated on the CPU
__device__ __forceinline__ unsigned dot4(unsigned a, unsigned b, unsigned c) {
  for (int k = 0; k < 32; k += 8) c += (a >> k & 0xFF) * (b >> k & 0xFF);
  return c;
}
#endif

// Where the ballots of a launch are. A unit is what a thread reads at once: 16 bytes of weights and their ballots.
template <bool PACKED, int KIND>
struct Source {
  enum {
    BALLOTS = KIND == WEIGHT_U8 ? 16 : 4,         // a unit
    BYTES = PACKED ? BALLOTS / 2 : BALLOTS,       // of its ballots
    WORDS = BYTES < 4 ? 1 : BYTES / 4,            // that hold them
    // units a thread has under way, which are four loads of 16 bytes in the end
    FLIGHT = KIND == WEIGHT_U8 ? 2 : 4
  };
  const unsigned char *ballots;
  const uint4 *weights;
  unsigned units, rest; // whole units, and ballots behind them: fewer than 32
  unsigned shift;       // bits from a word's begin to the first ballot
  bool aligned;         // a unit's ballots are one load

  // n < 2^32, so there are fewer than 2^30 units. Where the ballots begin inside a word, a unit is put together from
  // one word more than it has, and the last units are left to the rest, so that nothing behind the ballots is read.
  __device__ __forceinline__ Source(const unsigned char *p, const uint4 *w, u64 n) {
    ballots = p;
    weights = w;
    const unsigned off = (unsigned)((u64)p % 4);
    shift = 8 * off;
    aligned = (u64)p % BYTES == 0;
    const u64 len = PACKED ? n / 2 : n;
    if (aligned || BYTES < 4) units = (unsigned)(n / BALLOTS);
    else units = len + off < 4 ? 0 : (unsigned)((len + off - 4) / BYTES);
    rest = (unsigned)(n - (u64)units * BALLOTS);
  }
};

template <bool PACKED, int KIND>
struct Unit {
  typedef Source<PACKED, KIND> S;
  unsigned ballots[S::WORDS];
  uint4 weights;

  __device__ __forceinline__ void load_aligned(const S &s, unsigned i) {
    weights = __ldcg(s.weights + i);
    if (S::BYTES == 2) ballots[0] = __ldcg((const unsigned short *)s.ballots + i);
    if (S::BYTES == 4) ballots[0] = __ldcg((const unsigned *)s.ballots + i);
    if (S::BYTES == 8) {
      const u64 v = __ldcg((const u64 *)s.ballots + i);
      ballots[0] = (unsigned)v, ballots[S::WORDS > 1 ? 1 : 0] = (unsigned)(v >> 32);
    }
    if (S::BYTES == 16) {
      const uint4 v = __ldcg((const uint4 *)s.ballots + i);
      ballots[0] = v.x, ballots[S::WORDS > 1 ? 1 : 0] = v.y, ballots[S::WORDS > 2 ? 2 : 0] = v.z,
          ballots[S::WORDS > 3 ? 3 : 0] = v.w;
    }
  }

  __device__ __forceinline__ void load_shifted(const S &s, unsigned i) {
    weights = __ldcg(s.weights + i);
    if (S::BYTES == 2) {
      const unsigned char *at = s.ballots + 2 * (u64)i;
      ballots[0] = __ldcg(at) | (unsigned)__ldcg(at + 1) << 8;
      return;
    }
    const unsigned *at = (const unsigned *)(s.ballots - s.shift / 8) + (u64)i * S::WORDS;
    unsigned low = __ldcg(at);
#pragma unroll
    for (int k = 0; k < S::WORDS; k++) {
      const unsigned high = __ldcg(at + k + 1);
      ballots[k] = __funnelshift_r(low, high, s.shift);
      low = high;
    }
  }

  // Ballots that weigh nothing.
  __device__ __forceinline__ void none() {
#pragma unroll
    for (int k = 0; k < S::WORDS; k++) ballots[k] = 0;
    weights = make_uint4(0, 0, 0, 0);
  }

  // Ballot k of the rest, alone.
  __device__ __forceinline__ void single(const S &s, unsigned k) {
    none();
    const u64 at = (u64)s.units * S::BALLOTS + k;
    ballots[0] = PACKED ? __ldcg(s.ballots + at / 2) >> at % 2 * 4 & 15 : __ldcg(s.ballots + at);
    weights.x = KIND == WEIGHT_U8 ? __ldcg((const unsigned char *)s.weights + at)
        : __ldcg((const unsigned *)s.weights + at);
  }
};

// Loads the units i, i + step and so on below stop, all of them under way at once. Units that are not there weigh
// nothing.
template <bool PACKED, int KIND>
__device__ __forceinline__ void load_units(const Source<PACKED, KIND> &s, unsigned i, unsigned step, unsigned stop,
    Unit<PACKED, KIND> *u) {
  const int FLIGHT = Source<PACKED, KIND>::FLIGHT;
  if (s.aligned && i + (FLIGHT - 1) * step < stop) {
#pragma unroll
    for (int f = 0; f < FLIGHT; f++) u[f].load_aligned(s, i + f * step);
    return;
  }
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    u[f].none();
    if (i + f * step >= stop) continue;
    if (s.aligned) u[f].load_aligned(s, i + f * step);
    else u[f].load_shifted(s, i + f * step);
  }
}

// consensus.Fixed of the float32 of these bits, which are below 2^16: the product is exact, and rounded to the even one
// of two that are as near. Conversions to integers run at a quarter of the rate of additions or less.
__device__ __forceinline__ unsigned fixed_weight(unsigned bits) {
  return __float2uint_rn(__uint_as_float(bits) * 65536.0f);
}

// The same of weights below 2^7: next to 2^23 a float's last bit is one, so the addition rounds to an integer, which is
// then in the low bits.
__device__ __forceinline__ unsigned fixed_small(unsigned bits) {
  return __float_as_uint(__fmaf_rn(__uint_as_float(bits), 65536.0f, 8388608.0f)) - 0x4B000000u;
}
#define SMALL_LIMIT 0x43000000u // 128: its product is 2^23

// As integers, the floats in [0, 65536) are below the integer of 65536, and no other float is.
#define FLOAT_LIMIT 0x47800000u

// The weight of these bits where it is none: zero, and counted but for minus zero.
__device__ __forceinline__ unsigned refuse(unsigned bits, unsigned *bad) {
  if (bits < FLOAT_LIMIT) return bits;
  if (bits != 0x80000000u) ++*bad;
  return 0;
}

// Makes floats fixed point; *bad counts the weights that consensus.Fixed refuses, which weigh 0. They are rare, and so
// are weights of 128 and more: a branch for all units. True where all weights are 2^23 at most.
template <bool PACKED, int KIND, int FLIGHT>
__device__ __forceinline__ bool fix_weights(Unit<PACKED, KIND> *u, unsigned *bad) {
  if (KIND != WEIGHT_F32) return false;
  unsigned most = 0; // one operation a weight
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    const unsigned w[4] = {u[f].weights.x, u[f].weights.y, u[f].weights.z, u[f].weights.w};
#pragma unroll
    for (int k = 0; k < 4; k++) most = w[k] > most ? w[k] : most;
  }
  if (most < SMALL_LIMIT) {
#pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
      uint4 *w = &u[f].weights;
      w->x = fixed_small(w->x), w->y = fixed_small(w->y), w->z = fixed_small(w->z), w->w = fixed_small(w->w);
    }
    return true;
  }
  if (most >= FLOAT_LIMIT) {
#pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
      uint4 *w = &u[f].weights;
      w->x = refuse(w->x, bad), w->y = refuse(w->y, bad), w->z = refuse(w->z, bad), w->w = refuse(w->w, bad);
    }
  }
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    uint4 *w = &u[f].weights;
    w->x = fixed_weight(w->x), w->y = fixed_weight(w->y), w->z = fixed_weight(w->z), w->w = fixed_weight(w->w);
  }
  return false;
}
