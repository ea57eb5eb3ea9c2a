// What the kernels of grids share.
#pragma once

typedef unsigned long long u64;

// The pages of a grid. per is the cells of a page.
struct Grid {
  unsigned char *pages;
  const unsigned *frames;
  u64 page_bytes;
  unsigned per;

  // The place of a cell.
  __device__ __forceinline__ unsigned char *cell(unsigned id) const {
    return pages + frames[id / per] * page_bytes + id % per;
  }
};

// Adds the sum of the counts of a warp to *sum. All threads of the warp call it.
__device__ __forceinline__ void add_warp(unsigned count, u64 *sum) {
  for (unsigned d = 16; d > 0; d /= 2) count += __shfl_down_sync(0xffffffffu, count, d);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(sum, (u64)count);
}
