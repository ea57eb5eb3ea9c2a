// Runs a kernel of fusion or of agent-addressed swarms on the CPU: a fiber for each thread of a block, block after
// block (fibers.hpp). It is for tests on machines without a GPU, as emulate_tally.cpp is for the tallies.
// Compile with -DKERNEL_FILE="...", -DKERNEL=name and -DPARAMS=n, the number of its parameters.
//
// usage: emulate FILE: reads uint64 words {threads, blocks, parameters}, then for each parameter {1 for memory, bytes
// or value} and the bytes, runs the kernel and writes the file anew with what is in memory then.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __threadfence(); }
static inline void __syncthreads() { fibers::wait_block(); }
static inline void warp_wait() { fibers::wait_warp(); }
static inline void __syncwarp(unsigned) { warp_wait(); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t all = (uint64_t)b << 32 | a;
  unsigned v = 0;
  for (int i = 0; i < 4; i++) v |= (unsigned)(all >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return v;
}
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
  return c;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }
static inline int __clz(unsigned v) { return v ? __builtin_clz(v) : 32; }
template <class T> static inline T __ldcg(const T *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
static inline unsigned atomicExch(unsigned *p, unsigned v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
template <class T> static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
template <> inline float atomicAdd(float *p, float v) {
  float old, sum;
  __atomic_load(p, &old, __ATOMIC_SEQ_CST);
  do sum = old + v;
  while (!__atomic_compare_exchange(p, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
template <class T> static inline T atomicMax(T *p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (v > old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
static inline unsigned atomicInc(unsigned *p, unsigned most) {
  unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(p, &old, old >= most ? 0 : old + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
static inline unsigned atomicCAS(unsigned *p, unsigned want, unsigned v) {
  __atomic_compare_exchange_n(p, &want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return want;
}

// Exchange between the lanes of a warp: every lane leaves its value, the warp waits, every lane reads all values, the
// warp waits.
static unsigned left_by[1024];
template <class F> static inline unsigned exchange(unsigned v, F look) {
  left_by[threadIdx.x] = v;
  warp_wait();
  const unsigned got = look(left_by + threadIdx.x / 32 * 32);
  warp_wait();
  return got;
}
// The lanes of the mask must be the lanes that exist: the kernel votes over present lanes only, and all of them.
static inline void present(unsigned mask) {
  const unsigned first = threadIdx.x / 32 * 32, n = blockDim.x - first;
  if (mask != (n < 32 ? (1u << n) - 1 : 0xffffffffu)) abort();
}
static inline unsigned __shfl_sync(unsigned mask, unsigned v, int lane) {
  present(mask);
  return exchange(v, [&](const unsigned *all) { return all[lane]; });
}
static inline unsigned __shfl_up_sync(unsigned mask, unsigned v, unsigned d) {
  present(mask);
  const unsigned lane = threadIdx.x % 32;
  return exchange(v, [&](const unsigned *all) { return lane >= d ? all[lane - d] : v; });
}
static inline unsigned __shfl_xor_sync(unsigned mask, unsigned v, unsigned d) {
  present(mask);
  return exchange(v, [&](const unsigned *all) { return all[threadIdx.x % 32 ^ d]; });
}
static inline unsigned __match_any_sync(unsigned mask, unsigned v) {
  present(mask);
  return exchange(v, [&](const unsigned *all) {
    unsigned peers = 0;
    for (unsigned lane = 0; lane < 32; lane++)
      if (mask >> lane & 1 && all[lane] == v) peers |= 1u << lane;
    return peers;
  });
}
static inline unsigned __ballot_sync(unsigned mask, bool v) {
  present(mask);
  return exchange(v, [&](const unsigned *all) {
    unsigned yes = 0;
    for (unsigned lane = 0; lane < 32; lane++)
      if (mask >> lane & 1 && all[lane]) yes |= 1u << lane;
    return yes;
  });
}
static inline bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) != 0; }

#ifdef EMULATED_MMA
// The tensor cores: every lane leaves its fragments of a and b, the warp waits, every lane sums for its places in d,
// the warp waits. a and b have 16 rows and 8 columns of 32 bytes.
static unsigned fragments[1024][6];
static void emulated_mma(int *d, const int *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
    unsigned b1) {
  const unsigned mine[6] = {a0, a1, a2, a3, b0, b1}, lane = threadIdx.x % 32;
  memcpy(fragments[threadIdx.x], mine, sizeof mine);
  warp_wait();
  const auto all = fragments + threadIdx.x / 32 * 32;
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
    int sum = c[i];
    for (unsigned k = 0; k < 8; k++)
      sum = __dp4a((int)all[4 * row + k % 4][i / 2 + k / 4 * 2], (int)all[4 * column + k % 4][4 + k / 4], sum);
    d[i] = sum;
  }
  warp_wait();
}
#endif

#include KERNEL_FILE

#include "launch.hpp"
