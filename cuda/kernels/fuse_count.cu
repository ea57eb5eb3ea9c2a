// fuse_count counts the agents of each node and numbers them, in any order; see kernels.FuseCountArgs. A block counts
// a tile of agents in shared memory, and adds once for each node of the tile: a heavy node costs no more than others,
// and so do many.
#include "fuse_added.cuh"

struct Counts {
  // of a slot: its node; its agents of the tile, then its agents before the tile
  unsigned node[FUSE_SLOTS], agents[FUSE_SLOTS];
  unsigned short slot[FUSE_TILE], number[FUSE_TILE];    // of an agent: its slot, its number in the slot
};

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK, 5)
fuse_count(const unsigned *members, unsigned agents, unsigned nodes, unsigned *counts, unsigned *numbers,
    unsigned long long *scratch) {
  __shared__ Counts tile;
  Totals totals = {};
  const unsigned present = lanes_present(), lane = threadIdx.x % 32, below = (1u << lane) - 1;
  for (u64 first = (u64)blockIdx.x * FUSE_TILE; first < agents; first += (u64)gridDim.x * FUSE_TILE) {
    for (unsigned s = threadIdx.x; s < FUSE_SLOTS; s += blockDim.x) tile.node[s] = NO_NODE, tile.agents[s] = 0;
    __syncthreads();
    for (unsigned base = 0; base < FUSE_TILE; base += blockDim.x) {
      const unsigned i = base + threadIdx.x;
      const bool there = i < FUSE_TILE && first + i < agents;
      const unsigned id = there ? members[first + i] : NO_NODE;
      const bool in = id < nodes;
      if (there && !in) count_outside(id, totals);
      const unsigned peers = __match_any_sync(present, in ? id : NO_NODE), leader = __ffs(peers) - 1;
      unsigned found = FUSE_NO_SLOT, before = 0;
      if (in && lane == leader) {
        found = find_slot(tile.node, id);
        before = atomicAdd(&tile.agents[found], (unsigned)__popc(peers));
      }
      found = __shfl_sync(present, found, leader);
      before = __shfl_sync(present, before, leader);
      if (i >= FUSE_TILE) continue;
      tile.slot[i] = (unsigned short)found;
      tile.number[i] = (unsigned short)(before + __popc(peers & below));
    }
    __syncthreads();
    const int each = 4; // additions on their way a thread
    for (unsigned base = threadIdx.x; base < FUSE_SLOTS; base += each * blockDim.x) {
      unsigned n[each];
#pragma unroll
      for (int j = 0; j < each; j++) {
        const unsigned s = base + j * blockDim.x;
        n[j] = s < FUSE_SLOTS ? tile.agents[s] : 0;
        if (n[j]) n[j] = atomicAdd(&counts[tile.node[s]], n[j]);
      }
#pragma unroll
      for (int j = 0; j < each; j++)
        if (base + j * blockDim.x < FUSE_SLOTS) tile.agents[base + j * blockDim.x] = n[j];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < FUSE_TILE; i += blockDim.x)
      if (tile.slot[i] != FUSE_NO_SLOT) numbers[first + i] = tile.agents[tile.slot[i]] + tile.number[i];
    __syncthreads(); // before the next tile is put in its place
  }
  finish(totals, 0, scratch, 0, 0);
}
