// What the kernels of fusions share: agents in pages, and nodes.
#pragma once

typedef unsigned long long u64;

// The agents of a swarm: per agents in each page.
struct Agents {
  const unsigned char *pages;
  u64 page_bytes;
  const unsigned *frames;
  unsigned per;

  // The page of a number; null: the page is not on the device.
  __device__ __forceinline__ const unsigned char *page(unsigned number) const {
    const unsigned frame = frames[number];
    return frame >> ABSENT_BIT ? (const unsigned char *)0 : pages + frame * page_bytes;
  }
};

// The last of the nodes that begins at or before an item. firsts has the first item of each node, and behind them the
// number of items, which is above item.
__device__ __forceinline__ unsigned node_of(const unsigned *firsts, unsigned nodes, unsigned item) {
  unsigned low = 0, high = nodes; // firsts[low] <= item < firsts[high]
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    if (firsts[middle] <= item)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ __forceinline__ bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }
