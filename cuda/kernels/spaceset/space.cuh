// What the kernels of agents in a box share.
#pragma once

typedef unsigned long long u64;
typedef long long i64;

// The pages of the agents. per is the agents of a page. Variable k of dims positions, and of dims velocities behind
// them, has a word for each agent from at+k*stride on.
struct Pages {
  unsigned char *pages;
  const unsigned *frames;
  u64 page_bytes;
  unsigned per, at, stride;

  __device__ __forceinline__ unsigned char *page(unsigned id) const { return pages + frames[id / per] * page_bytes; }

  __device__ __forceinline__ unsigned *word(unsigned char *page, unsigned id, unsigned k) const {
    return (unsigned *)(page + at + k * stride) + id % per;
  }
};

// Four words of Philox4x32-10; see kernels.Philox.
struct Words {
  unsigned w[4];

  __device__ __forceinline__ Words(unsigned key0, unsigned key1, unsigned c0, unsigned c1) {
    unsigned c2 = 0, c3 = 0;
    for (int i = 0; i < 10; i++) {
      const u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
      c0 = (unsigned)(p1 >> 32) ^ c1 ^ key0;
      c1 = (unsigned)p1;
      c2 = (unsigned)(p0 >> 32) ^ c3 ^ key1;
      c3 = (unsigned)p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
  }
};

// The bins of a box: nx times ny times nz, where nz is 1 in two dimensions.
struct Bins {
  unsigned nx, ny, nz;

  // The bin of a position on an axis of n bins.
  __device__ __forceinline__ static unsigned on(unsigned position, unsigned n) {
    return (unsigned)((u64)position * n >> 32);
  }

  __device__ __forceinline__ unsigned of(uint4 p) const { return (on(p.z, nz) * ny + on(p.y, ny)) * nx + on(p.x, nx); }
};

// Adds the sum of the counts of a warp to *sum. All lanes of the warp call it.
__device__ __forceinline__ void add_warp(unsigned count, u64 *sum) {
  for (unsigned d = 16; d > 0; d /= 2) count += __shfl_xor_sync(0xffffffffu, count, d);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(sum, (u64)count);
}
