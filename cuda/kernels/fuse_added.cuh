// What the kernels of unsorted fusion share: they add to nodes by atomics.
#pragma once

#include "fuse.cuh"

// Adds four floats to global memory at a multiple of 16 bytes, each by itself. One transaction in place of four, where
// there is one; it takes the generic address, which is the global one.
__device__ __forceinline__ void add4(float *to, float a, float b, float c, float d) {
#if __CUDACC_VER_MAJOR__ >= 12 && __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#else
  atomicAdd(to, a);
  atomicAdd(to + 1, b);
  atomicAdd(to + 2, c);
  atomicAdd(to + 3, d);
#endif
}

struct Unsorted {
  const uint4 *rows;
  const unsigned *members, *weights;
  unsigned agents, low, high, nodes, dim, flags;
  float *sums;
  u64 *tallies;

  __device__ __forceinline__ bool few() const { return high - low <= FUSE_SLOTS; }
  __device__ __forceinline__ unsigned weight(unsigned agent) const {
    return flags & FUSE_WEIGHTED ? weights[agent] : FUSE_ONE;
  }

  // Adds what a team holds for a node to the node: acc has the team's columns, agents is the number of its rows, and
  // weight the sum of their weights.
  template <class E, int C>
  __device__ __forceinline__ void leave(u64 node, float (*acc)[E::VALUES], unsigned agents, u64 weight, const Team &t,
      Totals &totals) const {
    const unsigned vectors = dim / E::VALUES;
    float *to = sums + node * dim;
#pragma unroll
    for (int c = 0; c < C; c++) {
      const unsigned v = t.at + c * t.lanes;
      if (v >= vectors) continue;
#pragma unroll
      for (int q = 0; q < E::VALUES; q += 4)
        add4(to + v * E::VALUES + q, acc[c][q], acc[c][q + 1], acc[c][q + 2], acc[c][q + 3]);
    }
    for (unsigned i = t.at; i < 2; i += t.lanes) atomicAdd(&tallies[2 * node + i], i == 0 ? (u64)agents : weight);
    if (t.at == 0) {
      totals.fused += agents;
      totals.weight += weight;
    }
  }

  // Adds one agent to a node by one thread, or refuses it: for blocks of less than a warp.
  template <class E>
  __device__ __forceinline__ void add_alone(u64 node, unsigned agent, Totals &totals) const {
    const unsigned vectors = dim / E::VALUES, by = weight(agent);
    const uint4 *row = rows + (u64)agent * vectors;
    if (!whole<E>(row, vectors)) {
      totals.refused++;
      return;
    }
    for (unsigned v = 0; v < vectors; v++) {
      float acc[E::VALUES] = {};
      E::add(acc, row[v], factor(by));
      for (int q = 0; q < E::VALUES; q += 4)
        add4(sums + node * dim + v * E::VALUES + q, acc[q], acc[q + 1], acc[q + 2], acc[q + 3]);
    }
    atomicAdd(&tallies[2 * node], 1ull);
    atomicAdd(&tallies[2 * node + 1], (u64)by);
    totals.fused++;
    totals.weight += by;
  }
};

// The slot of an id in a block's hash table in shared memory, which is half full at most; a new id is entered.
__device__ __forceinline__ unsigned find_slot(unsigned *node, unsigned id) {
  unsigned h = (id * 2654435761u) >> 7 & (FUSE_SLOTS - 1); // Knuth's multiplicative hash
  for (;;) {
    const unsigned there = atomicCAS(&node[h], NO_NODE, id);
    if (there == NO_NODE || there == id) return h;
    h = (h + 1) & (FUSE_SLOTS - 1);
  }
}

// Counts a member that is no node.
__device__ __forceinline__ void count_outside(unsigned id, Totals &totals) {
  totals.nobody += id == NO_NODE;
  totals.invalid += id != NO_NODE;
}

// The lanes of this thread's warp that are in the block.
__device__ __forceinline__ unsigned lanes_present() {
  const unsigned left = blockDim.x - threadIdx.x / 32 * 32;
  return left < 32 ? (1u << left) - 1 : FULL;
}
