// Adds rows to nodes by atomics; see kernels.FuseUnsortedArgs. A block takes a tile of agents at a time and brings
// the agents of a node together, by a hash table of counters in shared memory: it counts, gives every node a stretch of
// places, and puts the agents into it. Teams then walk equal shares of the places, sum in registers while the node is
// the same, and add to global memory when it changes. So a heavy node costs one addition a team and tile, however heavy
// it is, and however many such nodes there are; and few nodes need fewer additions than there are agents.
#pragma once

#include "fuse_added.cuh"

// A tile's agents by node. Shared memory of a block.
struct Tile {
  unsigned node[FUSE_SLOTS], place[FUSE_SLOTS]; // of a slot: its node; the number of its agents, then its next place
  unsigned short slot[FUSE_TILE];               // of an agent
  unsigned short agent[FUSE_TILE];              // of a place
  unsigned taken;                               // places

  // The slot of a node of the range, which is entered where it is new. A range of few nodes has a slot for each.
  __device__ __forceinline__ unsigned find(const Unsorted &u, unsigned id) {
    if (u.few()) return id - u.low;
    return find_slot(node, id);
  }

  __device__ __forceinline__ u64 node_of(const Unsorted &u, unsigned slot) const {
    return u.few() ? u.low + slot : node[slot];
  }

  // Brings the agents from first on together. All threads of the block call it; present has a bit for each lane of the
  // warp that exists.
  __device__ __forceinline__ void group(const Unsorted &u, u64 first, unsigned present, Totals &totals) {
    const unsigned lane = threadIdx.x % 32, below = (1u << lane) - 1;
    for (unsigned s = threadIdx.x; s < FUSE_SLOTS; s += blockDim.x) node[s] = NO_NODE, place[s] = 0;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();
    for (unsigned base = 0; base < FUSE_TILE; base += blockDim.x) {
      const unsigned i = base + threadIdx.x;
      const bool there = i < FUSE_TILE && first + i < u.agents;
      const unsigned id = there ? u.members[first + i] : NO_NODE;
      const bool in = id >= u.low && id < u.high;
      if (u.flags & FUSE_FIRST && there && id >= u.nodes) count_outside(id, totals);
      const unsigned peers = __match_any_sync(present, in ? id : NO_NODE), leader = __ffs(peers) - 1;
      unsigned found = FUSE_NO_SLOT;
      if (in && lane == leader) {
        found = find(u, id);
        atomicAdd(&place[found], (unsigned)__popc(peers));
      }
      found = __shfl_sync(present, found, leader);
      if (i < FUSE_TILE) slot[i] = (unsigned short)found;
    }
    __syncthreads();
    for (unsigned base = 0; base < FUSE_SLOTS; base += blockDim.x) {
      const unsigned s = base + threadIdx.x, n = s < FUSE_SLOTS ? place[s] : 0;
      unsigned sum = n;
      for (unsigned d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_up_sync(present, sum, d);
        if (lane >= d) sum += other;
      }
      const unsigned last = 31 - __clz(present);
      unsigned start = 0;
      if (lane == last && sum > 0) start = atomicAdd(&taken, sum);
      start = __shfl_sync(present, start, last);
      if (s < FUSE_SLOTS) place[s] = start + sum - n;
    }
    __syncthreads();
    for (unsigned base = 0; base < FUSE_TILE; base += blockDim.x) {
      const unsigned i = base + threadIdx.x, mine = i < FUSE_TILE ? slot[i] : FUSE_NO_SLOT;
      const unsigned peers = __match_any_sync(present, mine), leader = __ffs(peers) - 1;
      unsigned start = 0;
      if (mine != FUSE_NO_SLOT && lane == leader) start = atomicAdd(&place[mine], (unsigned)__popc(peers));
      start = __shfl_sync(present, start, leader);
      if (mine != FUSE_NO_SLOT) agent[start + __popc(peers & below)] = (unsigned short)i;
    }
    __syncthreads();
  }
};

// A team's share of a tile's places.
template <class E, int C, int B>
__device__ __forceinline__ void add_rows(const Unsorted &u, const Tile &tile, u64 first, Totals &totals) {
  const unsigned vectors = u.dim / E::VALUES;
  const Team t = this_team(vectors);
  if (threadIdx.x / 32 >= t.warps) return;
  const unsigned teams = t.warps * t.per_warp, share = (tile.taken + teams - 1) / teams;
  const unsigned from = (threadIdx.x / 32 * t.per_warp + t.in_warp) * share,
      end = from + share < tile.taken ? from + share : tile.taken;
  unsigned held = FUSE_NO_SLOT, agents = 0;
  u64 weight = 0;
  float acc[C][E::VALUES];
  for (unsigned k = 0; k <= share; k += B) { // one step more than there may be rows: the last sum leaves there
    unsigned at[B], slot[B], w[B], take = 0;
    Batch<E, C, B> batch;
#pragma unroll
    for (int b = 0; b < B; b++) {
      const bool in = k + b < share && from + k + b < end;
      const unsigned i = in ? tile.agent[from + k + b] : 0;
      if (in) take |= 1u << b;
      slot[b] = in ? tile.slot[i] : FUSE_NO_SLOT;
      at[b] = (unsigned)(first + i);
    }
    batch.load(u.rows, at, take, vectors, t);
#pragma unroll
    for (int b = 0; b < B; b++) w[b] = take >> b & 1 ? u.weight(at[b]) : 0;
    const unsigned odd = batch.refused(t);
    if (t.at == 0) totals.refused += __popc(odd);
#pragma unroll
    for (int b = 0; b < B; b++) {
      if (odd >> b & 1) continue;
      if (slot[b] != held) { // another node, or the end
        if (held != FUSE_NO_SLOT) u.leave<E, C>(tile.node_of(u, held), acc, agents, weight, t, totals);
        held = slot[b];
        agents = 0;
        weight = 0;
#pragma unroll
        for (int c = 0; c < C; c++) {
#pragma unroll
          for (int v = 0; v < E::VALUES; v++) acc[c][v] = 0;
        }
      }
      if (!(take >> b & 1)) continue;
      batch.add(acc, b, factor(w[b]));
      agents++;
      weight += w[b];
    }
  }
}

// A place a thread: for blocks of less than a warp.
template <class E>
__device__ __forceinline__ void add_rows_alone(const Unsorted &u, const Tile &tile, u64 first, Totals &totals) {
  for (unsigned p = threadIdx.x; p < tile.taken; p += blockDim.x) {
    const unsigned i = tile.agent[p];
    u.add_alone<E>(tile.node_of(u, tile.slot[i]), (unsigned)(first + i), totals);
  }
}

// WIDE is for rows of more than a warp's 32 vectors, as with fuse_sorted.
template <class E, bool WIDE>
__device__ __forceinline__ void fuse_unsorted(const Unsorted &u, u64 *scratch, unsigned sequence, u64 *result) {
  __shared__ Tile tile;
  Totals totals = {};
  const unsigned present = lanes_present();
  for (u64 first = (u64)blockIdx.x * FUSE_TILE; first < u.agents; first += (u64)gridDim.x * FUSE_TILE) {
    tile.group(u, first, present, totals);
    if (blockDim.x < 32) add_rows_alone<E>(u, tile, first, totals);
    else if (!WIDE) add_rows<E, 1, 4>(u, tile, first, totals);
    else if (E::VALUES == 8 || u.dim / E::VALUES <= 64) add_rows<E, 2, 2>(u, tile, first, totals);
    else add_rows<E, 4, 1>(u, tile, first, totals);
    __syncthreads(); // before the next tile is put in its place
  }
  finish(totals, u.flags, scratch, sequence, result);
}
