// Sums runs of rows, one run a team; see kernels.FuseSortedArgs. Runs are short and of about equal length, whatever
// the nodes are, so the teams end together; a node of many runs gets its sum by further launches over the sums of its
// runs.
// No atomics touch a sum: the bits do not depend on the launch shape.
#pragma once

#include "fuse.cuh"

struct Sorted {
  const uint4 *rows;
  const unsigned *order, *weights;
  const uint4 *runs;
  unsigned count, dim, flags;
  float *sums;
  u64 *tallies;
  float *part_sums;
  u64 *part_tallies;

  // The rows of run number r, first and how many; none behind the last.
  __device__ __forceinline__ uint2 rows_of(u64 r) const {
    return r < count ? ((const uint2 *)runs)[2 * r] : make_uint2(0, 0);
  }

  // The agent, or the sum of a run, that is row k of a run.
  __device__ __forceinline__ unsigned row(uint2 run, unsigned k) const {
    const unsigned at = run.x + k;
    return k < run.y && flags & FUSE_ORDER ? order[at] : at;
  }

  __device__ __forceinline__ unsigned weight(unsigned row) const {
    return flags & FUSE_WEIGHTED ? weights[row] : FUSE_ONE;
  }

  // Whether the run leaves its target as it is: a node without members that is not written anew.
  __device__ __forceinline__ bool idle(uint4 run) const {
    return run.w != FUSE_RUN_PART && run.y == 0 && !(flags & FUSE_FRESH);
  }

  // Stores values of a vector's columns.
  __device__ __forceinline__ void store(uint4 run, unsigned vector, const float *acc, int values) const {
    const bool part = run.w == FUSE_RUN_PART;
    float4 *to = (float4 *)((part ? part_sums : sums) + (u64)run.z * dim + (u64)vector * values);
    for (int i = 0; i < values / 4; i++) {
      float4 v = make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
      if (!part) {
        const float4 old = flags & FUSE_FRESH ? make_float4(0, 0, 0, 0) : to[i];
        v = make_float4(old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w);
      }
      to[i] = v;
    }
  }

  __device__ __forceinline__ void tally(uint4 run, unsigned taken, u64 weight) const {
    u64 *to = (run.w == FUSE_RUN_PART ? part_tallies : tallies) + 2 * (u64)run.z;
    u64 agents = taken;
    if (run.w != FUSE_RUN_PART && !(flags & FUSE_FRESH)) agents += to[0], weight += to[1];
    to[0] = agents;
    to[1] = weight;
  }

  // Counts what a run has taken from agents; sums of runs were counted when they were made.
  __device__ __forceinline__ void count_agents(Totals &totals, unsigned agents, unsigned refused, u64 weight) const {
    if (flags & FUSE_PARTS) return;
    totals.fused += agents;
    totals.refused += refused;
    totals.weight += weight;
  }
};

// One run a team. B rows are loaded together, and the numbers of the next B while they are on their way. Runs may be
// short: the next run is read at the start of one, and the numbers of its first rows with the last rows of it, so that
// what a team waits for is rows alone.
template <class E, int C, int B>
__device__ __forceinline__ void sum_runs(const Sorted &s, Totals &totals) {
  const unsigned vectors = s.dim / E::VALUES;
  const Team t = this_team(vectors);
  if (threadIdx.x / 32 >= t.warps) return;
  const bool parts = s.flags & FUSE_PARTS;
  const u64 step = (u64)gridDim.x * t.warps * t.per_warp;
  u64 base = ((u64)blockIdx.x * t.warps + threadIdx.x / 32) * t.per_warp;
  uint2 next = s.rows_of(base + t.in_warp);
  unsigned ahead[B];
#pragma unroll
  for (int b = 0; b < B; b++) ahead[b] = s.row(next, b);
  for (; base < s.count; base += step) {
    const bool mine = base + t.in_warp < s.count;
    const uint2 target = mine ? ((const uint2 *)s.runs)[2 * (base + t.in_warp) + 1] : make_uint2(0, 0);
    const uint4 run = make_uint4(next.x, next.y, target.x, target.y);
    next = s.rows_of(base + step + t.in_warp);
    const unsigned longest = warp_most(run.y);
    float acc[C][E::VALUES];
#pragma unroll
    for (int c = 0; c < C; c++) {
#pragma unroll
      for (int v = 0; v < E::VALUES; v++) acc[c][v] = 0;
    }
    u64 weight = 0;
    unsigned agents = 0, refused = 0, k = 0;
    do { // once for runs without rows too: the numbers of the next run are read there
      unsigned at[B], take = 0;
      Batch<E, C, B> batch;
#pragma unroll
      for (int b = 0; b < B; b++) {
        at[b] = ahead[b];
        if (k + b < run.y) take |= 1u << b;
      }
      batch.load(s.rows, at, take, vectors, t);
      unsigned w[B];
#pragma unroll
      for (int b = 0; b < B; b++) {
        w[b] = take >> b & 1 ? s.weight(at[b]) : 0;
        ahead[b] = k + B < longest ? s.row(make_uint2(run.x, run.y), k + B + b) : s.row(next, b);
      }
      if (!parts) {
        const unsigned odd = batch.refused(t);
        refused += __popc(odd);
        take &= ~odd;
      }
#pragma unroll
      for (int b = 0; b < B; b++) {
        if (!(take >> b & 1)) continue;
        batch.add(acc, b, factor(w[b]));
        if (!parts) {
          agents++;
          weight += w[b];
        } else if (t.at == 0) {
          agents += (unsigned)s.part_tallies[2 * (u64)at[b]];
          weight += s.part_tallies[2 * (u64)at[b] + 1];
        }
      }
      k += B;
    } while (k < longest);
    if (!mine || s.idle(run)) continue;
#pragma unroll
    for (int c = 0; c < C; c++)
      if (t.at + c * t.lanes < vectors) s.store(run, t.at + c * t.lanes, acc[c], E::VALUES);
    if (t.at == 0) {
      s.tally(run, agents, weight);
      s.count_agents(totals, agents, refused, weight);
    }
  }
}

// One run a thread, vector by vector: for blocks of less than a warp.
template <class E>
__device__ __forceinline__ void sum_runs_alone(const Sorted &s, Totals &totals) {
  const unsigned vectors = s.dim / E::VALUES;
  const bool parts = s.flags & FUSE_PARTS;
  for (u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x; r < s.count; r += (u64)gridDim.x * blockDim.x) {
    const uint4 run = s.runs[r];
    if (s.idle(run)) continue;
    u64 weight = 0;
    unsigned agents = 0, refused = 0;
    for (unsigned v = 0; v < vectors; v++) {
      float acc[E::VALUES] = {};
      for (unsigned k = 0; k < run.y; k++) {
        const unsigned at = s.row(make_uint2(run.x, run.y), k);
        const bool ok = parts || whole<E>(s.rows + (u64)at * vectors, vectors);
        if (ok) E::add(acc, s.rows[(u64)at * vectors + v], factor(s.weight(at)));
        if (v > 0) continue;
        refused += !ok;
        if (ok) {
          agents += parts ? (unsigned)s.part_tallies[2 * (u64)at] : 1;
          weight += parts ? s.part_tallies[2 * (u64)at + 1] : s.weight(at);
        }
      }
      s.store(run, v, acc, E::VALUES);
    }
    s.tally(run, agents, weight);
    s.count_agents(totals, agents, refused, weight);
  }
}

// WIDE is for rows of more than a warp's 32 vectors: a kernel of its own, so that its registers do not crowd the
// others.
// FUSE_ROWS loads of 16 bytes are in flight a lane, whatever the row.
template <class E, bool WIDE>
__device__ __forceinline__ void fuse_sorted(const Sorted &s, u64 *scratch, unsigned sequence, u64 *result) {
  Totals totals = {};
  if (blockDim.x < 32) sum_runs_alone<E>(s, totals);
  else if (!WIDE) sum_runs<E, 1, FUSE_ROWS>(s, totals);
  else if (E::VALUES == 8 || s.dim / E::VALUES <= 64) sum_runs<E, 2, FUSE_ROWS / 2>(s, totals);
  else sum_runs<E, 4, FUSE_ROWS / 4>(s, totals);
  finish(totals, s.flags, scratch, sequence, result);
}
