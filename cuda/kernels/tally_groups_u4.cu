// tally_groups_u4_5, _8 and _16 are tally_groups_u8 for ballots of half a byte, the even one of a byte in its low half:
// a group may begin and end in the middle of a byte. There are at most 16 candidates, so all groups are counted by bit
// planes: a small one by a thread alone, a larger one by a warp. Groups of one size below 64 are read by whole lines.
#include "tally_groups.cuh"

#ifndef TALLY
#define TALLY tally_groups_u4_16
#define PLANES 16
#endif

template <int K>
__device__ __forceinline__ void count_group(Ballots<K> *b, const unsigned char *ballots, u64 lo, unsigned len,
                                            unsigned lane, unsigned lanes) {
  const u64 hi = lo + len, from = (lo + 1) / 2, to = hi / 2; // whole bytes; from may be behind to
  const unsigned char *p = ballots + from;
  const Split s = split(p, to > from ? to - from : 0);
  const unsigned vectors = (unsigned)s.vectors;
  unsigned i = lane;
  for (; i + lanes < vectors; i += 2 * lanes) {
    const uint4 v0 = s.body[i], v1 = s.body[i + lanes];
    b->halves(v0);
    b->halves(v1);
  }
  if (i < vectors) b->halves(s.body[i]);
  const unsigned first = len > 0 ? (unsigned)(lo % 2) : 0, last = hi > lo + first ? (unsigned)(hi % 2) : 0;
  if (lane != lanes - 1 || s.head + s.tail + first + last == 0) return;
  // What is left fits two vectors, and their last bytes, which head and tail never reach, take the half bytes at the
  // ends.
  uint4 head = gather(p, s.head), tail = gather((const unsigned char *)(s.body + vectors), s.tail);
  if (first) head.w = (head.w & 0x00FFFFFFu) | (0xF0u | ballots[lo / 2] >> 4) << 24;
  if (last) tail.w = (tail.w & 0x00FFFFFFu) | (0xF0u | (ballots[hi / 2] & 0xFu)) << 24;
  b->halves(head);
  b->halves(tail);
  const unsigned pads = 64 - 2 * (s.head + s.tail) - first - last; // ballots of all ones that are none
  if (K < 16) b->abstain -= pads;
  else b->counts[K - 1] -= pads;
}

// Eight ballots of the size ballots from ballot at of some words in shared memory, from ballot 8 k on, filled up with
// ones.
__device__ __forceinline__ unsigned halves_from(const unsigned *words, unsigned at, unsigned size, unsigned k) {
  if (8 * k >= size) return PAD;
  const unsigned *p = words + at / 8 + k;
  const unsigned v = __funnelshift_r(p[0], p[1], at % 8 * 4), left = size - 8 * k;
  return left >= 8 ? v : v | PAD << 4 * left;
}

// Groups of one size below 64: 32 of them have a whole number of vectors, which is the size, and begin at one. A warp
// reads these by whole lines, the next while it counts these. Each thread takes its group out of shared memory.
template <int K>
__device__ __forceinline__ void groups_tiles(const Ask &ask, const unsigned char *ballots, unsigned size,
                                             unsigned groups, const unsigned *priorities, const Out &out,
                                             uint4 *shared, unsigned *decided) {
  const unsigned lane = threadIdx.x % 32;
  uint4 *mine = shared + threadIdx.x / 32 * 65;
  const u64 bytes = (ask.n + 1) / 2, whole = bytes / 16; // vectors; what is behind them is read byte by byte
  const bool led = ask.flags & TALLY_PRIORITIES;
  const unsigned tiles = (groups + 31) / 32;
  const u64 id = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, warps = (u64)gridDim.x * (blockDim.x / 32);
  uint4 v[2];
#define TILE(tile)                                                                     \
  _Pragma("unroll") for (unsigned k = 0; k < 2; k++) {                                 \
    const u64 i = (tile) * size + k * 32 + lane;                                       \
    v[k] = make_uint4(PAD, PAD, PAD, PAD);                                             \
    if ((tile) >= tiles || k * 32 + lane >= size) continue;                            \
    if (i < whole) v[k] = __ldcg((const uint4 *)ballots + i);                          \
    else if (i == whole) v[k] = gather(ballots + 16 * whole, (unsigned)(bytes % 16));  \
  }
  TILE(id)
  for (u64 tile = id; tile < tiles; tile += warps) {
#pragma unroll
    for (unsigned k = 0; k < 2; k++) mine[k * 32 + lane] = v[k];
    __syncwarp(0xffffffffu);
    TILE(tile + warps)
    const unsigned g = (unsigned)tile * 32 + lane;
    if (g < groups) {
      unsigned x[8];
#pragma unroll
      for (unsigned k = 0; k < 8; k++) x[k] = halves_from((const unsigned *)mine, lane * size, size, k);
      Ballots<K> b;
      b.clear();
      b.halves(make_uint4(x[0], x[1], x[2], x[3]));
      b.halves(make_uint4(x[4], x[5], x[6], x[7]));
      if (K < 16) b.abstain -= 64 - size;
      else b.counts[K - 1] -= 64 - size;
      store_planes<K, true>(ask, out, g, b, size, led ? leader_key(priorities + (u64)g * size, 0, size, 1) : 0,
          decided);
    }
    __syncwarp(0xffffffffu);
  }
#undef TILE
}

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *starts, unsigned size, unsigned groups, const unsigned *priorities, unsigned flags, unsigned rule,
      unsigned of_all, unsigned num, unsigned den, unsigned long long seen, unsigned long long round, unsigned sequence,
      unsigned long long *scratch, unsigned long long *word, unsigned *winners, unsigned *leaders, unsigned *rows,
      unsigned long long *result) {
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  const Out out = {winners, leaders, rows};
  __shared__ uint4 shared[256 / 32 * 65]; // the lines of a warp, and one that no ballot needs
  unsigned decided = 0;
  ballots += first;
  if (size != 0 && size < 64 && size % 32 != 0 && (u64)ballots % 16 == 0 && ask.n == (u64)groups * size &&
      blockDim.x <= 256)
    groups_tiles<PLANES>(ask, ballots, size, groups, priorities, out, shared, &decided);
  else
    groups_planes<PLANES, true>(ask, ballots, starts, size, groups, priorities, out, &decided);
  finish_groups(ask, decided, scratch, word, result);
}
