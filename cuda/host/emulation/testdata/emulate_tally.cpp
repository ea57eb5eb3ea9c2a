// Runs a tally kernel on the CPU: a fiber for each thread of a block, block after block (fibers.hpp). It is for tests
// on machines without a GPU, as emulate.cpp is for the cells. Compile with -DKERNEL_FILE="...", -DKERNEL=name and
// -DPARAMS=number.
//
// usage: emulate FILE: reads uint64 words {threads, blocks, parameters}, then for each parameter {1 for memory, bytes
// or value} and the bytes, runs the kernel and writes the file anew with what is in memory then.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <cmath>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __threadfence(); }
static inline void __syncthreads() { fibers::wait_block(); }
static inline void __syncwarp(unsigned) { fibers::wait_warp(); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
// A load that may go ahead of stores: here a plain one.
template <class T> static inline T __ldg(const T *p) { return *p; }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }
template <class T> static inline T __ldcg(const T *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline uint4 __ldcg(const uint4 *p) { return *p; }
static inline unsigned __vcmpne4(unsigned a, unsigned b) {
  unsigned r = 0;
  for (int k = 0; k < 32; k += 8)
    if ((a ^ b) >> k & 0xFF) r |= 0xFFu << k;
  return r;
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int k = 0; k < 4; k++) r |= (unsigned)(both >> 8 * (s >> 4 * k & 7) & 0xFF) << 8 * k;
  return r;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (s & 31));
}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline unsigned __float2uint_rn(float v) { return (unsigned)std::nearbyint(v); }
static inline int __float2int_rn(float v) { return (int)std::nearbyint(v); }
template <class T> static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline unsigned atomicInc(unsigned *p, unsigned most) {
  unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(p, &old, old >= most ? 0 : old + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
static inline unsigned long long atomicMax(unsigned long long *p, unsigned long long v) {
  unsigned long long old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
static inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long want, unsigned long long v) {
  __atomic_compare_exchange_n(p, &want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return want;
}

// Exchange between the lanes of a warp: every lane leaves its value, the warp waits, every lane takes the other's.
template <class T> static inline T exchange(T v, unsigned lane) {
  static T lanes[1024];
  const unsigned first = threadIdx.x / 32 * 32;
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  T got = lane < 32 ? lanes[first + lane] : v;
  __syncwarp(0);
  return got;
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned d) {
  return exchange(v, threadIdx.x % 32 + d);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, unsigned d) {
  return exchange(v, threadIdx.x % 32 ^ d);
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane) { return exchange(v, lane); }
static inline unsigned __ballot_sync(unsigned mask, bool v) {
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) all |= (unsigned)exchange(v, lane) << lane;
  return all;
}

#include KERNEL_FILE

#include "launch.hpp"
