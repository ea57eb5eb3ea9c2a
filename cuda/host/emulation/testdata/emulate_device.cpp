// Runs generated kernels on the CPU: the threads of a block are fibers of one thread, block after block (fibers.hpp).
// Compile with -DKERNELS="...", a file that has the texts of the kernels and `table`, which names them.
//
// usage: emulate NAME FILE: reads uint64 words {threads, blocks, parameters}, then for each parameter {1 for memory,
// bytes or value} and the bytes, runs the kernel and writes the file anew with what is in memory then. Memory ends at a
// page that cannot be read.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
// Dynamic shared memory: as much as a block may have on any device.
#define X_DYNAMIC(name) static unsigned name[57344] __attribute__((aligned(16)))

static inline void __syncthreads() { fibers::wait_block(); }
static inline void __syncwarp(unsigned = ~0u) { fibers::wait_warp(); }
static inline void __threadfence() {}
static inline void __nanosleep(unsigned) {}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
// A load that may go ahead of stores: here a plain one.
template <class T> static inline T __ldg(const T *p) { return *p; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
template <class T> static inline T __ldcg(const T *p) { return *p; }
static inline double __longlong_as_double(long long v) {
  double d;
  memcpy(&d, &v, 8);
  return d;
}
static inline long long __double_as_longlong(double v) {
  long long l;
  memcpy(&l, &v, 8);
  return l;
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __int2float_rn(int v) { return (float)v; }
static inline float __uint2float_rn(unsigned v) { return (float)v; }
template <class T> static inline T atomicAdd(T *p, T v) {
  T old = *p;
  *p = old + v;
  return old;
}
static inline unsigned atomicInc(unsigned *p, unsigned most) {
  unsigned old = *p;
  *p = old >= most ? 0 : old + 1;
  return old;
}
template <class T> static inline T exchange(T v, unsigned lane) {
  static T lanes[1024];
  const unsigned first = threadIdx.x / 32 * 32;
  lanes[threadIdx.x] = v;
  __syncwarp();
  T got = lane < 32 ? lanes[first + lane] : v;
  __syncwarp();
  return got;
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned d) {
  return exchange(v, threadIdx.x % 32 + d);
}
template <class T> static inline T __shfl_up_sync(unsigned, T v, unsigned d) {
  return exchange(v, threadIdx.x % 32 >= d ? threadIdx.x % 32 - d : 99);
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane) { return exchange(v, lane); }
static inline unsigned __ballot_sync(unsigned, bool v) {
  static bool lanes[1024];
  const unsigned first = threadIdx.x / 32 * 32;
  lanes[threadIdx.x] = v;
  __syncwarp();
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; lane++) all |= (unsigned)lanes[first + lane] << lane;
  __syncwarp();
  return all;
}

struct Entry {
  const char *name;
  void (*call)(void **);
};
template <size_t... I> struct Indices {};
template <size_t N, size_t... I> struct Make : Make<N - 1, N - 1, I...> {};
template <size_t... I> struct Make<0, I...> {
  typedef Indices<I...> type;
};
template <class... A, size_t... I> static void apply(void (*f)(A...), void **a, Indices<I...>) { f(*(A *)a[I]...); }
template <class... A> static void invoke(void (*f)(A...), void **a) {
  apply(f, a, typename Make<sizeof...(A)>::type());
}

#include KERNELS

static void *arguments[256];
static void (*chosen)(void **);
static void launch() { chosen(arguments); }

int main(int, char **argv) {
  for (const Entry &e : table)
    if (strcmp(e.name, argv[1]) == 0) chosen = e.call;
  FILE *f = fopen(argv[2], "r+b");
  uint64_t head[3];
  if (!chosen || !f || fread(head, 8, 3, f) != 3 || head[2] > 256) return 1;
  static uint64_t values[256], words[256][2];
  static char *at[256];
  for (uint64_t i = 0; i < head[2]; i++) {
    if (fread(words[i], 8, 2, f) != 2) return 1;
    values[i] = words[i][1];
    arguments[i] = &values[i];
    if (!words[i][0]) continue;
    const size_t n = words[i][1], whole = (n + 4095) / 4096 * 4096;
    char *p = (char *)mmap(nullptr, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p + whole, 4096, PROT_NONE);
    at[i] = p + whole - (n + 15) / 16 * 16;
    if (n && fread(at[i], 1, n, f) != n) return 1;
    values[i] = (uint64_t)at[i];
  }
  blockDim = Index{(unsigned)head[0], 1, 1};
  gridDim = Index{(unsigned)head[1], 1, 1};
  for (unsigned b = 0; b < gridDim.x; b++) {
    blockIdx = Index{b, 0, 0};
    fibers::run(blockDim.x, launch);
  }
  rewind(f);
  fwrite(head, 8, 3, f);
  for (uint64_t i = 0; i < head[2]; i++) {
    fwrite(words[i], 8, 2, f);
    if (words[i][0] && words[i][1]) fwrite(at[i], 1, words[i][1], f);
  }
  return fclose(f);
}
