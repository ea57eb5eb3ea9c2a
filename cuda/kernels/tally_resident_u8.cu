// tally_resident_u8_8 and _16 are tally_u8_8 and _16 for many rounds over the same electorate by one launch; see
// kernels.TallyResidentArgs. One cluster of blocks, which share their memory, counts a megabyte in less time than a
// launch takes. The first block polls a doorbell in host memory, tells the others when it rings, and has the sums of
// all.
// The kernel ends when it is told to, or when its life is over: no kernel may stay for ever. A chip without clusters
// has one block work.
#include "tally.cuh"

#ifndef TALLY
#define TALLY tally_resident_u8_16
#define PLANES 16
#endif
#if __CUDA_ARCH__ >= 900
#define BLOCKS RESIDENT_BLOCKS
#else
#define BLOCKS 1
#undef __cluster_dims__
#define __cluster_dims__(...)
#endif

// Waits for all threads of the cluster, which then see what the others stored in shared memory.
__device__ __forceinline__ void meet() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

#if __CUDA_ARCH__ >= 900
// The address, in the cluster, of a variable of a block's shared memory.
__device__ __forceinline__ unsigned theirs(const void *mine, unsigned block) {
  unsigned at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"((unsigned)__cvta_generic_to_shared(mine)),
      "r"(block));
  return at;
}
#endif

__device__ __forceinline__ void tell(unsigned *mine, unsigned block, unsigned v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(theirs(mine, block)), "r"(v) : "memory");
#else
  *mine = v;
#endif
}

// Adds to a sum of the first block.
__device__ __forceinline__ void add(unsigned *mine, unsigned v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(theirs(mine, 0)), "r"(v) : "memory");
#else
  atomicAdd(mine, v);
#endif
}

// Leaves a word in a place of the first block.
__device__ __forceinline__ void leave(u64 *mine, u64 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(theirs(mine, 0)), "l"(v) : "memory");
#else
  *mine = v;
#endif
}

__device__ __forceinline__ u64 microseconds() {
#ifdef __CUDA_ARCH__
  u64 ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns / 1000;
#else
  static std::atomic<u64> looks;
  return looks++; // emulated on the CPU
#endif
}

// Waits for the ring with the number want. Lane i gets word i of the doorbell; when the life is over before, those are
// the words that end the kernel.
__device__ __forceinline__ unsigned listen(const Warp &warp, const u64 *doorbell, unsigned want, u64 until) {
  const u64 *mine = doorbell + warp.lane % DOORBELL_WORDS;
  for (;;) {
    const u64 w = *(const volatile u64 *)mine;
    if (__ballot_sync(warp.mask, (unsigned)w != want) == 0) return (unsigned)(w >> 32);
    if (__ballot_sync(warp.mask, warp.lane == 0 && microseconds() > until)) return 0; // lane 0's clock decides
  }
}

extern "C" __global__ void __cluster_dims__(RESIDENT_BLOCKS, 1, 1) __launch_bounds__(TALLY_THREADS)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *priorities, unsigned flags, unsigned rule, unsigned of_all, unsigned num, unsigned den,
      const unsigned long long *doorbell, unsigned life, unsigned sequence, unsigned long long *word,
      unsigned long long *result) {
  // Two of each, by turns: what is set back after a round is not used in the next one.
  __shared__ unsigned request[2][DOORBELL_WORDS], totals[2][PLANES + 1];
  __shared__ u64 leaders[2][RESIDENT_BLOCKS]; // the key of each block
  __shared__ Board board;
  if (blockIdx.x >= BLOCKS) return;
  const Warp warp = whole_warp();
  const bool first_warp = blockIdx.x == 0 && threadIdx.x < 32;
  Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, 0, 0};
  ballots += first;
  const Split s = split(ballots, n);
  const Walk w = walk((unsigned)s.vectors, blockIdx.x, BLOCKS);
  const u64 until = microseconds() + life;
  if (threadIdx.x < 2) {
    for (int i = 0; i <= PLANES; i++) totals[threadIdx.x][i] = 0;
  }
  meet();
  for (;;) {
    const unsigned turn = ++ask.sequence % 2;
    if (first_warp) {
      const unsigned v = listen(warp, doorbell, ask.sequence, until);
#pragma unroll
      for (int i = 0; i < DOORBELL_WORDS; i++) {
        const unsigned value = __shfl_sync(warp.mask, v, i);
        if (warp.lane < BLOCKS) tell(&request[turn][i], warp.lane, value);
      }
    }
    meet();
    if (request[turn][DOORBELL_STEPS] == 0) return;
    ask.seen = (u64)request[turn][DOORBELL_SEEN_HIGH] << 32 | request[turn][DOORBELL_SEEN];
    ask.round = ask.seen + request[turn][DOORBELL_STEPS];
    u64 now = 0;
    bool won = false;
    if (blockIdx.x == 0 && threadIdx.x == 0) won = elect(word, ask, &now); // under way with the loads
    u64 key = electorate_key(ask, priorities, blockIdx.x, BLOCKS);
    Ballots<PLANES> b;
    b.clear();
    count_body<PLANES, false>(w, s.body, (unsigned)s.vectors, &b);
    if (blockIdx.x == BLOCKS - 1 && threadIdx.x == blockDim.x - 1 && s.head + s.tail > 0) {
      b.bytes(gather(ballots, s.head), gather((const unsigned char *)(s.body + s.vectors), s.tail));
      b.abstain -= 32 - s.head - s.tail;
    }
    const unsigned sum = gather_block<PLANES>(warp, b, true, &key, &board);
    if (threadIdx.x < 32) {
      if (sum) add(&totals[turn][warp.lane], sum);
      if (warp.lane == 0) leave(&leaders[turn][blockIdx.x], key);
    }
    meet();
    if (!first_warp) continue;
    const unsigned votes = warp.lane <= PLANES ? totals[turn][warp.lane] : 0;
    const unsigned abstain = __shfl_sync(warp.mask, votes, PLANES);
    const u64 leader = warp_max(warp, warp.lane < BLOCKS ? leaders[turn][warp.lane] : 0);
    if (warp.lane <= PLANES) totals[turn][warp.lane] = 0;
    decide_warp(warp, ask, votes, abstain, leader, now, won, board.values, result);
  }
}
