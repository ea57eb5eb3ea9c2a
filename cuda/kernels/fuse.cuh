// What the fusion kernels share. A row is whole vectors of 16 bytes. A team of n lanes, a power of two up to a warp,
// handles a row at a time: each lane has every n-th vector, C vectors at most. A warp has several teams where rows are
// short, and all its teams make the same number of steps, so that votes over the warp are allowed everywhere. Lanes of
// a block behind its last whole warp stand by; a block of less than a warp goes thread by thread, slowly and with the
// same results.
#pragma once

#include "fuse_words.cuh"

typedef unsigned long long u64;

#define FULL 0xffffffffu

// Rows in flight a lane where runs or places are walked, of one vector each: 4 or 8. Rows of several vectors a lane
// have as many fewer. Eight need registers that a third block of a multiprocessor would have.
#ifndef FUSE_ROWS
#define FUSE_ROWS 4
#endif
#define FUSE_BLOCKS (FUSE_ROWS > 4 ? 2 : 3)

// Rows of float. add rounds the product and the sum: kernels are compiled without fusing the two.
struct F32 {
  enum { VALUES = 4 };
  static __device__ __forceinline__ bool odd(uint4 v) {
    const unsigned e = 0x7f800000u;
    return (v.x & e) == e || (v.y & e) == e || (v.z & e) == e || (v.w & e) == e;
  }
  static __device__ __forceinline__ void add(float *acc, uint4 v, float w) {
    acc[0] += w * __uint_as_float(v.x);
    acc[1] += w * __uint_as_float(v.y);
    acc[2] += w * __uint_as_float(v.z);
    acc[3] += w * __uint_as_float(v.w);
  }
};

// Rows of bf16, the upper halves of floats; of a pair the even column is the low half.
struct BF16 {
  enum { VALUES = 8 };
  static __device__ __forceinline__ bool half(unsigned v) {
    return (v & 0x7f80u) == 0x7f80u || (v & 0x7f800000u) == 0x7f800000u;
  }
  static __device__ __forceinline__ bool odd(uint4 v) { return half(v.x) || half(v.y) || half(v.z) || half(v.w); }
  static __device__ __forceinline__ void pair(float *acc, unsigned v, float w) {
    acc[0] += w * __uint_as_float(v << 16);
    acc[1] += w * __uint_as_float(v & 0xffff0000u);
  }
  static __device__ __forceinline__ void add(float *acc, uint4 v, float w) {
    pair(acc, v.x, w);
    pair(acc + 2, v.y, w);
    pair(acc + 4, v.z, w);
    pair(acc + 6, v.w, w);
  }
};

// What a weight multiplies by.
__device__ __forceinline__ float factor(unsigned weight) { return (float)weight * (1.0f / FUSE_ONE); }

// This thread's place in its team.
struct Team {
  // lanes of a team; lane of the thread; team of the warp; teams of a warp; its lanes
  unsigned lanes, at, in_warp, per_warp, mask;
  unsigned warps;                              // whole warps of the block
};

__device__ __forceinline__ Team this_team(unsigned vectors) {
  Team t;
  t.lanes = 1;
  while (t.lanes < vectors && t.lanes < 32) t.lanes *= 2;
  const unsigned lane = threadIdx.x % 32;
  t.at = lane & (t.lanes - 1);
  t.in_warp = lane / t.lanes;
  t.per_warp = 32 / t.lanes;
  t.mask = (t.lanes == 32 ? FULL : (1u << t.lanes) - 1) << (t.in_warp * t.lanes);
  t.warps = blockDim.x / 32;
  return t;
}

// The largest over a whole warp.
__device__ __forceinline__ unsigned warp_most(unsigned v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(FULL, v);
#else
  for (unsigned d = 16; d > 0; d /= 2) {
    const unsigned other = __shfl_xor_sync(FULL, v, d);
    if (other > v) v = other;
  }
  return v;
#endif
}

// B rows on their way to a lane: C vectors of each.
template <class E, int C, int B>
struct Batch {
  uint4 raw[B][C];

  // Loads the lane's part of row number at[b] for each b that is set in take. Rows are read once: they leave the cache
  // first.
  __device__ __forceinline__ void load(const uint4 *rows, const unsigned *at, unsigned take, unsigned vectors,
      const Team &t) {
#pragma unroll
    for (int b = 0; b < B; b++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        const unsigned v = t.at + c * t.lanes;
        raw[b][c] = take >> b & 1 && v < vectors ? __ldcs(rows + (u64)at[b] * vectors + v) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  // The rows of the team that have a value that is not finite, as bits. By all lanes of the warp.
  __device__ __forceinline__ unsigned refused(const Team &t) const {
    unsigned odd = 0;
#pragma unroll
    for (int b = 0; b < B; b++) {
#pragma unroll
      for (int c = 0; c < C; c++) odd |= E::odd(raw[b][c]) ? 1u << b : 0u;
    }
    if (!__any_sync(FULL, odd != 0)) return 0;
    unsigned all = 0;
#pragma unroll
    for (int b = 0; b < B; b++)
      if (__ballot_sync(FULL, odd >> b & 1) & t.mask) all |= 1u << b;
    return all;
  }

  __device__ __forceinline__ void add(float (*acc)[E::VALUES], int b, float w) const {
#pragma unroll
    for (int c = 0; c < C; c++) E::add(acc[c], raw[b][c], w);
  }
};

// Whether a row has no value that is not finite, by one thread.
template <class E>
__device__ __forceinline__ bool whole(const uint4 *row, unsigned vectors) {
  for (unsigned v = 0; v < vectors; v++)
    if (E::odd(row[v])) return false;
  return true;
}

// What a thread has counted; see kernels.FuseFused. A launch has fewer than 2^32 agents.
struct Totals {
  unsigned fused, refused, nobody, invalid;
  u64 weight;
};

// The end of a launch, by all threads: the totals go to scratch memory, and the last block of a fusion's last launch
// takes them out, so that it is zero again, and stores the result, its first word last.
__device__ __forceinline__ void finish(const Totals &mine, unsigned flags, u64 *scratch, unsigned sequence,
    u64 *result) {
  __shared__ u64 block[FUSE_WORDS];
  __shared__ bool last;
  for (unsigned i = threadIdx.x; i < FUSE_WORDS; i += blockDim.x) block[i] = 0;
  __syncthreads();
  if (mine.fused) atomicAdd(&block[FUSE_FUSED], (u64)mine.fused);
  if (mine.refused) atomicAdd(&block[FUSE_REFUSED], (u64)mine.refused);
  if (mine.nobody) atomicAdd(&block[FUSE_NOBODY], (u64)mine.nobody);
  if (mine.invalid) atomicAdd(&block[FUSE_INVALID], (u64)mine.invalid);
  if (mine.weight) atomicAdd(&block[FUSE_WEIGHT], mine.weight);
  __syncthreads();
  for (unsigned i = threadIdx.x; i < FUSE_WORDS; i += blockDim.x)
    if (block[i]) atomicAdd(&scratch[i], block[i]);
  if (!(flags & FUSE_LAST)) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)&scratch[FUSE_TICKET], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  __threadfence();
  for (int i = FUSE_TICKET + 1; i < FUSE_WORDS; i++) {
    result[i] = __ldcg(&scratch[i]);
    scratch[i] = 0;
  }
  __threadfence_system();
  *(volatile u64 *)&result[FUSE_TICKET] = sequence;
}
