// Runs an observe kernel on the CPU: a fiber for each thread of a block, block after block (fibers.hpp).
// It is for tests on machines without a GPU: the kernel's own text is compiled, so its arithmetic, its indexing and its
// synchronisation are what is tested. Compile with -ffp-contract=off, -DKERNEL_FILE="..." and -DKERNEL=name.
//
// usage: emulate FILE: reads uint64 words {threads, blocks, page_bytes, bytes of each of the 12 buffers in the order of
// the kernel's parameters}, then the buffers, runs the kernel and writes all of it back to FILE.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
static inline void __syncthreads() { fibers::wait_block(); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline float __ull2float_rn(unsigned long long a) { return (float)a; }
static inline float __ll2float_rn(long long a) { return (float)a; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
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

// Exchange between the lanes of a warp: every lane leaves its value, all wait, every lane takes its neighbour's. All
// warps of the block exchange at once, which holds for the kernels here: they shuffle with whole blocks.
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned d) {
  static T lanes[1024];
  lanes[threadIdx.x] = v;
  __syncthreads();
  T got = threadIdx.x % 32 + d < 32 ? lanes[threadIdx.x + d] : v;
  __syncthreads();
  return got;
}

#include KERNEL_FILE

static uint64_t head[15];
static std::vector<std::vector<uint64_t>> buffers; // of uint64, for the alignment

static void launch() {
  auto at = [&](int i) { return (void *)buffers[i].data(); };
  // Frames in host memory are the same.
  KERNEL((unsigned char *)at(0), head[2], (unsigned *)at(1), (unsigned *)at(2), (float *)at(3), (Run *)at(4),
         (long long *)at(5), (double *)at(6), (float *)at(7), (unsigned *)at(8), (unsigned *)at(9), (unsigned *)at(10),
         (unsigned long long *)at(11), (unsigned char *)at(0));
}

int main(int, char **argv) {
  FILE *f = fopen(argv[1], "r+b");
  if (!f) return 1;
  if (fread(head, 8, 15, f) != 15) return 1;
  for (int i = 3; i < 15; i++) {
    buffers.emplace_back(head[i] / 8 + 1);
    if (head[i] && fread(buffers.back().data(), 1, head[i], f) != head[i]) return 1;
  }
  blockDim.x = head[0], gridDim.x = head[1];
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) fibers::run(blockDim.x, launch);
  fseek(f, 15 * 8, SEEK_SET);
  for (int i = 0; i < 12; i++)
    if (head[i + 3] && fwrite(buffers[i].data(), 1, head[i + 3], f) != head[i + 3]) return 1;
  return fclose(f);
}
