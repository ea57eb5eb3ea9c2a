// tally_groups_u8_5, _8, _16 and _256 decide each of many groups of one-byte ballots, and close one round for all of
// them; see kernels.TallyGroupsArgs. Up to 16 candidates: a thread counts a small group alone, by bit planes in its
// registers, and a warp shares a larger one, so groups of 1 and of 65,536 agents may stand side by side. More
// candidates: a warp counts each group in a histogram of its own. Where groups are large on the average each warp takes
// one at a time.
#include "tally_groups.cuh"

#ifndef TALLY
#define TALLY tally_groups_u8_16
#define PLANES 16
#endif

template <int K>
__device__ __forceinline__ void count_group(Ballots<K> *b, const unsigned char *ballots, u64 lo, unsigned len,
                                            unsigned lane, unsigned lanes) {
  const unsigned char *p = ballots + lo;
  const Split s = split(p, len);
  const unsigned vectors = (unsigned)s.vectors;
  const uint4 pad = make_uint4(PAD, PAD, PAD, PAD);
  for (unsigned i = lane; i < vectors; i += 2 * lanes) {
    const bool second = i + lanes < vectors;
    const uint4 v0 = s.body[i], v1 = second ? s.body[i + lanes] : pad;
    b->bytes(v0, v1);
    if (!second) b->abstain -= 16;
  }
  if (lane == lanes - 1 && s.head + s.tail > 0) {
    b->bytes(gather(p, s.head), gather((const unsigned char *)(s.body + vectors), s.tail));
    b->abstain -= 32 - s.head - s.tail;
  }
}

// Groups of 16, 32, 48 or 64 ballots: a warp reads 32 of them with whole lines, the next while it counts these, and
// exchanges them through shared memory so that each thread has one group. The places are turned so that neither the
// stores nor the loads of a quarter of a warp meet in a bank.
template <int K>
__device__ __forceinline__ void groups_lines(const Ask &ask, const unsigned char *ballots, unsigned vectors,
                                             unsigned groups, const unsigned *priorities, const Out &out, uint4 *shared,
                                             unsigned *decided) {
  const unsigned lane = threadIdx.x % 32, total = groups * vectors, size = 16 * vectors; // total < 2^28
  uint4 *mine = shared + threadIdx.x / 32 * 128;
  const uint4 *body = (const uint4 *)ballots;
  const bool led = ask.flags & TALLY_PRIORITIES;
  const unsigned tiles = (groups + 31) / 32;
  const u64 id = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = (u64)gridDim.x * (blockDim.x / 32);
  uint4 v[4];
#define LINES(tile)                                                                       \
  _Pragma("unroll") for (unsigned k = 0; k < 4; k++) {                                    \
    const unsigned i = (unsigned)(tile) * 32 * vectors + k * 32 + lane;                   \
    v[k] = (tile) < tiles && k < vectors && i < total ? __ldcg(body + i) : make_uint4(PAD, PAD, PAD, PAD); \
  }
  LINES(id)
  for (u64 tile = id; tile < tiles; tile += warps) {
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
      const unsigned i = k * 32 + lane;
      if (k < vectors) mine[(i & ~7u) | ((i ^ i >> 3) & 7)] = v[k];
    }
    __syncwarp(0xffffffffu);
    LINES(tile + warps)
    uint4 x[4];
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
      const unsigned i = lane * vectors + k;
      x[k] = k < vectors ? mine[(i & ~7u) | ((i ^ i >> 3) & 7)] : make_uint4(PAD, PAD, PAD, PAD);
    }
    const unsigned g = (unsigned)tile * 32 + lane;
    if (g < groups) {
      Ballots<K> b;
      b.clear();
      b.bytes(x[0], x[1]);
      b.bytes(x[2], x[3]);
      b.abstain -= 16 * (4 - vectors);
      store_planes<K, false>(ask, out, g, b, size, led ? leader_key(priorities + (u64)g * size, 0, size, 1) : 0,
          decided);
    }
    __syncwarp(0xffffffffu);
  }
#undef LINES
}

// Word k of the size bytes from byte at of some words in shared memory, filled up with bytes 0xFF.
__device__ __forceinline__ unsigned word_of(const unsigned *words, unsigned at, unsigned size, unsigned k) {
  if (4 * k >= size) return PAD;
  const unsigned *p = words + at / 4 + k;
  const unsigned v = __funnelshift_r(p[0], p[1], at % 4 * 8), left = size - 4 * k;
  return left >= 4 ? v : v | PAD << 8 * left;
}

// Groups of any other size below 64: 32 of them have a whole number of vectors, 2 size, and begin at one. A warp reads
// these as groups_lines does. Each thread then takes its group out of shared memory word by word.
template <int K>
__device__ __forceinline__ void groups_tiles(const Ask &ask, const unsigned char *ballots, unsigned size,
                                             unsigned groups, const unsigned *priorities, const Out &out,
                                             uint4 *shared, unsigned *decided) {
  const unsigned lane = threadIdx.x % 32, vectors = 2 * size;
  uint4 *mine = shared + threadIdx.x / 32 * 128;
  const u64 whole = ask.n / 16; // vectors; what is behind them is read byte by byte
  const bool led = ask.flags & TALLY_PRIORITIES;
  const unsigned tiles = (groups + 31) / 32;
  const u64 id = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = (u64)gridDim.x * (blockDim.x / 32);
  uint4 v[4];
#define TILE(tile)                                                                              \
  _Pragma("unroll") for (unsigned k = 0; k < 4; k++) {                                          \
    const u64 i = (tile) * vectors + k * 32 + lane;                                             \
    v[k] = make_uint4(PAD, PAD, PAD, PAD);                                                      \
    if ((tile) >= tiles || k * 32 + lane >= vectors) continue;                                  \
    if (i < whole) v[k] = __ldcg((const uint4 *)ballots + i);                                   \
    else if (i == whole) v[k] = gather(ballots + 16 * whole, (unsigned)(ask.n % 16));           \
  }
  TILE(id)
  for (u64 tile = id; tile < tiles; tile += warps) {
#pragma unroll
    for (unsigned k = 0; k < 4; k++) mine[k * 32 + lane] = v[k];
    __syncwarp(0xffffffffu);
    TILE(tile + warps)
    const unsigned g = (unsigned)tile * 32 + lane;
    if (g < groups) {
      unsigned x[16];
#pragma unroll
      for (unsigned k = 0; k < 16; k++) x[k] = word_of((const unsigned *)mine, lane * size, size, k);
      Ballots<K> b;
      b.clear();
      b.bytes(make_uint4(x[0], x[1], x[2], x[3]), make_uint4(x[4], x[5], x[6], x[7]));
      b.bytes(make_uint4(x[8], x[9], x[10], x[11]), make_uint4(x[12], x[13], x[14], x[15]));
      b.abstain -= 64 - size;
      store_planes<K, false>(ask, out, g, b, size, led ? leader_key(priorities + (u64)g * size, 0, size, 1) : 0,
          decided);
    }
    __syncwarp(0xffffffffu);
  }
#undef TILE
}

template <int K>
__device__ __forceinline__ void groups_counted(const Ask &ask, const unsigned char *ballots, const unsigned *starts,
                                               unsigned size, unsigned groups, const unsigned *priorities,
                                               const Out &out, uint4 *shared, unsigned *decided) {
  const bool lines = size != 0 && size <= 64 && (u64)ballots % 16 == 0 && ask.n == (u64)groups * size &&
      blockDim.x <= 256;
  if (lines && size % 16 == 0) groups_lines<K>(ask, ballots, size / 16, groups, priorities, out, shared, decided);
  else if (lines) groups_tiles<K>(ask, ballots, size, groups, priorities, out, shared, decided);
  else groups_planes<K, false>(ask, ballots, starts, size, groups, priorities, out, decided);
}

__device__ __forceinline__ void groups_rows(const Ask &ask, const unsigned char *ballots, const unsigned *starts,
                                            unsigned size, unsigned groups, const unsigned *priorities, const Out &out,
                                            unsigned *histogram, unsigned *decided) {
  const Warp warp = whole_warp();
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32), id = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  unsigned *bins = histogram + 256 * (threadIdx.x / 32);
  for (u64 g = id; g < groups; g += warps) {
    const Group at = group(starts, size, ask.n, (unsigned)g);
    for (unsigned v = warp.lane; v < 256; v += warp.lanes) bins[v] = 0;
    __syncwarp(warp.mask);
    for (unsigned i = warp.lane; i < at.len; i += warp.lanes) atomicAdd(&bins[ballots[at.lo + i]], 1u);
    __syncwarp(warp.mask);
    u64 strongest = 0;
    unsigned cast = 0;
    unsigned *row = out.rows + g * (ask.candidates + 2);
    for (unsigned c = warp.lane; c < ask.candidates; c += warp.lanes) {
      cast += bins[c];
      const u64 key = (u64)bins[c] << 32 | (unsigned)~c;
      if (key > strongest) strongest = key;
      if (ask.flags & TALLY_ROWS) row[c] = bins[c];
    }
    strongest = warp_max(warp, strongest);
    cast = warp_sum(warp, cast);
    const bool led = ask.flags & TALLY_PRIORITIES;
    const u64 leader = led ? warp_max(warp, leader_key(priorities + at.lo, warp.lane, at.len, warp.lanes)) : 0;
    if (warp.lane == 0)
      store(ask, out, (unsigned)g, ~(unsigned)strongest, (unsigned)(strongest >> 32), cast,
          ask.candidates < 256 ? bins[255] : 0, at.len, leader, decided);
    __syncwarp(warp.mask);
  }
}

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *starts, unsigned size, unsigned groups, const unsigned *priorities, unsigned flags, unsigned rule,
      unsigned of_all, unsigned num, unsigned den, unsigned long long seen, unsigned long long round, unsigned sequence,
      unsigned long long *scratch, unsigned long long *word, unsigned *winners, unsigned *leaders, unsigned *rows,
      unsigned long long *result) {
  __shared__ uint4 shared[256 * 4]; // the lines of the warps, or their histograms
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  const Out out = {winners, leaders, rows};
  ballots += first;
  unsigned decided = 0;
#if PLANES <= PLANE_CANDIDATES
  groups_counted<PLANES>(ask, ballots, starts, size, groups, priorities, out, shared, &decided);
#else
  groups_rows(ask, ballots, starts, size, groups, priorities, out, (unsigned *)shared, &decided);
#endif
  finish_groups(ask, decided, scratch, word, result);
}
