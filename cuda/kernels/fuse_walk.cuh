// Adds rows to nodes by places, where the agents of a node stand together; see kernels.FuseWalkArgs. A team takes an
// equal share of consecutive places, whatever the nodes are, sums in registers while the node is the same, and adds by
// atomics when it changes: a node costs one addition, and one more for each share that it reaches into.
#pragma once

#include "fuse_added.cuh"

// The agent at a place, and FUSE_HEAD where it is the first of its node.
__device__ __forceinline__ unsigned entry(const unsigned *order, u64 place, unsigned places) {
  return place < places ? order[place] : 0;
}

// The entries of the next rows are read while rows are on their way, and the entries of the next share with the
// last rows of this share.
// Only the first agent of a node, and of a share, is asked for its node.
template <class E, int C, int B>
__device__ __forceinline__ void walk(const Unsorted &u, const unsigned *order, unsigned places, Totals &totals) {
  const unsigned vectors = u.dim / E::VALUES;
  const Team t = this_team(vectors);
  if (threadIdx.x / 32 >= t.warps) return;
  const u64 step = (u64)gridDim.x * t.warps * t.per_warp * FUSE_SHARE;
  // the first place of the warp's teams
  u64 base = ((u64)blockIdx.x * t.warps + threadIdx.x / 32) * t.per_warp * FUSE_SHARE;
  unsigned ahead[B];
#pragma unroll
  for (int b = 0; b < B; b++) ahead[b] = entry(order, base + t.in_warp * FUSE_SHARE + b, places);
  for (; base < places; base += step) {
    const u64 from = base + t.in_warp * FUSE_SHARE;
    const unsigned n = from + FUSE_SHARE <= places ? FUSE_SHARE : from < places ? (unsigned)(places - from) : 0;
    unsigned held = NO_NODE, agents = 0;
    u64 weight = 0;
    float acc[C][E::VALUES];
    for (unsigned k = 0; k <= FUSE_SHARE; k += B) { // one step more than there may be rows: the last sum leaves there
      unsigned at[B], node[B], w[B], take = 0, head = k == 0;
      Batch<E, C, B> batch;
#pragma unroll
      for (int b = 0; b < B; b++) {
        if (k + b < n) take |= 1u << b;
        if (ahead[b] & FUSE_HEAD) head |= 1u << b;
        at[b] = ahead[b] & ~FUSE_HEAD;
      }
      batch.load(u.rows, at, take, vectors, t);
#pragma unroll
      for (int b = 0; b < B; b++) {
        node[b] = take & head & 1u << b ? u.members[at[b]] : NO_NODE;
        w[b] = take >> b & 1 ? u.weight(at[b]) : 0;
        ahead[b] = entry(order, (k + B <= FUSE_SHARE ? from + k + B : from + step) + b, places);
      }
      const unsigned odd = batch.refused(t);
      if (t.at == 0) totals.refused += __popc(odd);
#pragma unroll
      for (int b = 0; b < B; b++) {
        if (head >> b & 1 || !(take >> b & 1)) { // another node, or the end
          if (agents > 0) u.leave<E, C>(held, acc, agents, weight, t, totals);
          held = node[b];
          agents = 0;
          weight = 0;
#pragma unroll
          for (int c = 0; c < C; c++) {
#pragma unroll
            for (int v = 0; v < E::VALUES; v++) acc[c][v] = 0;
          }
        }
        if (!((take & ~odd) >> b & 1)) continue;
        batch.add(acc, b, factor(w[b]));
        agents++;
        weight += w[b];
      }
    }
  }
}

// WIDE is for rows of more than a warp's 32 vectors, as with fuse_sorted.
template <class E, bool WIDE>
__device__ __forceinline__ void fuse_walk(const Unsorted &u, const unsigned *order, const unsigned *starts,
    u64 *scratch, unsigned sequence, u64 *result) {
  Totals totals = {};
  const unsigned places = starts[u.nodes];
  if (blockDim.x < 32) {
    for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < places; p += (u64)gridDim.x * blockDim.x) {
      const unsigned agent = order[p] & ~FUSE_HEAD;
      u.add_alone<E>(u.members[agent], agent, totals);
    }
  } else if (!WIDE) walk<E, 1, FUSE_ROWS>(u, order, places, totals);
  else if (E::VALUES == 8 || u.dim / E::VALUES <= 64) walk<E, 2, FUSE_ROWS / 2>(u, order, places, totals);
  else walk<E, 4, FUSE_ROWS / 4>(u, order, places, totals);
  finish(totals, u.flags, scratch, sequence, result);
}
