// tally_weighted_u8_w32_256 and its like are tally_weighted_u8_w32_8 and its like for many candidates, whose sums do
// not fit in registers: a table in shared memory has a row for each value of a ballot and a column for each lane, so
// that lanes never meet in a bank, whatever the ballots are. Of weights of 32 bits a lane adds the halves to two
// columns. Sums of 32 bits go to sums of 64 bits before they can overflow.
#include "tally_weights.cuh"

#ifndef TALLY
#define TALLY tally_weighted_u8_w32_256
#define NIBBLES 0
#define WEIGHTS WEIGHT_U32
#endif
#define LANES 32
#define ROWS (NIBBLES ? 16 : 256)

// How many ballots a thread adds before a column could overflow, which 16 warps of a block share, and with two columns
// a lane two lanes of each. Tests make it small.
#ifndef ROW_BALLOTS
#define ROW_BALLOTS (WEIGHTS == WEIGHT_U8 ? 1u << 20 : 1u << 11)
#endif
static_assert((ROW_BALLOTS) * (WEIGHTS == WEIGHT_U8 ? 255ull : 2 * 65535ull) * (TALLY_THREADS / 32) < 1ull << 32,
    "a column overflows");

// Where a lane adds: both halves of a weight, and which half is first. The lower 16 lanes add the low half first to
// their own column and the high half to the one 16 further, the upper ones the other way round: in both steps each lane
// has a bank of its own, and low halves are in the lower columns.
struct Columns {
  char *own, *other;
  unsigned first, second; // selectors of the halves

  __device__ __forceinline__ Columns(unsigned *table) {
    const unsigned lane = threadIdx.x % LANES;
    own = (char *)(table + lane);
    other = (char *)(table + (lane ^ 16));
    first = lane < 16 ? 0x4410 : 0x4432;
    second = lane < 16 ? 0x4432 : 0x4410;
  }

  // row is in bytes.
  __device__ __forceinline__ void add(unsigned row, unsigned weight) const {
    if (WEIGHTS == WEIGHT_U8) {
      atomicAdd((unsigned *)(own + row), weight);
      return;
    }
    atomicAdd((unsigned *)(own + row), __byte_perm(weight, 0, first));
    atomicAdd((unsigned *)(other + row), __byte_perm(weight, 0, second));
  }
};

// Adds four ballots from bit at of b on, with the weights w, or the bytes of w[0].
__device__ __forceinline__ void add4(const Columns &c, unsigned b, unsigned at, const unsigned *w) {
  const unsigned bits = NIBBLES ? 4 : 8, mask = (ROWS - 1) * 4 * LANES;
#pragma unroll
  for (unsigned k = 0; k < 4; k++) {
    // a row is 2^7 bytes
    const unsigned from = at + bits * k, row = (from < 7 ? b << (7 - from) : b >> (from - 7)) & mask;
    c.add(row, WEIGHTS == WEIGHT_U8 ? w[0] >> 8 * k & 0xFF : w[k]);
  }
}

template <int FLIGHT>
__device__ __forceinline__ void weigh(Unit<NIBBLES, WEIGHTS> *u, const Columns &c, u64 *total, unsigned *bad) {
  fix_weights<NIBBLES, WEIGHTS, FLIGHT>(u, bad);
#pragma unroll
  for (int f = 0; f < FLIGHT; f++) {
    const uint4 v = u[f].weights;
    const unsigned w[4] = {v.x, v.y, v.z, v.w};
    if (WEIGHTS == WEIGHT_U8) {
#pragma unroll
      for (int k = 0; k < 4; k++)
        add4(c, u[f].ballots[NIBBLES ? k / 2 : k % Source<NIBBLES, WEIGHTS>::WORDS], NIBBLES ? 16 * (k % 2) : 0, w + k);
      *total += dot4(0x01010101u, v.x, dot4(0x01010101u, v.y, dot4(0x01010101u, v.z, dot4(0x01010101u, v.w, 0u))));
    } else {
      add4(c, u[f].ballots[0], 0, w);
      *total += (u64)v.x + v.y;
      *total += (u64)v.z + v.w;
    }
  }
}

// The rows that count: candidates and abstentions. What others add to their rows is never looked at.
__device__ __forceinline__ bool row_counts(const Ask &ask, unsigned row) {
  return row < ask.candidates || row == ROWS - 1;
}

// Adds the rows to the grid's sums, and leaves zeros. By all threads.
__device__ __forceinline__ void spill(const Ask &ask, unsigned *table, u64 *scratch) {
  __syncthreads();
#pragma unroll 1
  for (unsigned v = threadIdx.x; v < ROWS; v += blockDim.x) {
    if (!row_counts(ask, v)) continue;
    u64 sum = 0;
#pragma unroll 8
    for (unsigned k = 0; k < LANES; k++) { // each lane starts in another bank
      const unsigned column = (k + v) % LANES;
      sum += (u64)table[LANES * v + column] << (WEIGHTS != WEIGHT_U8 && column >= 16 ? 16 : 0);
      table[LANES * v + column] = 0;
    }
    if (sum) atomicAdd(&scratch[v < ask.candidates ? TALLY_SLOTS + v : TALLY_ABSTAIN], sum);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *priorities, unsigned flags, unsigned rule, unsigned of_all, unsigned num, unsigned den,
      unsigned long long seen, unsigned long long round, unsigned sequence, unsigned long long *scratch,
      unsigned long long *word, unsigned long long *result, const uint4 *weights) {
  typedef Source<NIBBLES, WEIGHTS> S;
  __shared__ uint4 cells[ROWS * LANES / 4];
  __shared__ u64 totals[TALLY_THREADS / 32], bads[TALLY_THREADS / 32];
  unsigned *table = (unsigned *)cells;
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  const Warp warp = whole_warp();
  for (unsigned i = threadIdx.x; i < ROWS * LANES / 4; i += blockDim.x)
    if (row_counts(ask, i / (LANES / 4))) cells[i] = make_uint4(0, 0, 0, 0);
  const u64 key = electorate_key(ask, priorities);
  __syncthreads();
  const S s(ballots + first, weights, n);
  const Columns columns(table);
  u64 total = 0;
  unsigned bad = 0;
  const Walk w = walk(s.units, blockIdx.x, gridDim.x);
  const unsigned span = (ROW_BALLOTS / (S::BALLOTS * S::FLIGHT) - 1) * S::FLIGHT; // one less: the rest
  u64 start = 0; // in units; all threads go round as often
#pragma unroll 1
  do {
    const u64 end = start + (u64)span * w.step;
    const unsigned stop = end < s.units ? (unsigned)end : s.units;
#pragma unroll 1
    for (u64 i = start + w.at; i < stop; i += S::FLIGHT * w.step) {
      Unit<NIBBLES, WEIGHTS> u[S::FLIGHT];
      load_units<NIBBLES, WEIGHTS>(s, (unsigned)i, w.step, stop, u);
      weigh<S::FLIGHT>(u, columns, &total, &bad);
    }
    if (stop == s.units && blockIdx.x == gridDim.x - 1 && threadIdx.x < s.rest) {
      Unit<NIBBLES, WEIGHTS> u;
      u.single(s, threadIdx.x);
      weigh<1>(&u, columns, &total, &bad);
    }
    spill(ask, table, scratch);
    start = end;
  } while (start < s.units);
  total = warp_sum_wide(warp, total);
  bad = WEIGHTS == WEIGHT_F32 ? warp_sum(warp, bad) : 0;
  if (warp.lane == 0) {
    totals[threadIdx.x / 32] = total;
    bads[threadIdx.x / 32] = bad;
  }
  lead(ask, key, scratch);
  __syncthreads();
  if (threadIdx.x < 32) {
    const bool has = warp.lane < blockDim.x / 32;
    total = warp_sum_wide(warp, has ? totals[warp.lane] : 0);
    const u64 all = warp_sum_wide(warp, has ? bads[warp.lane] : 0);
    if (warp.lane == 0) {
      if (total) atomicAdd(&scratch[TALLY_WEIGHT], total);
      if (all) atomicAdd(&scratch[TALLY_BAD], all);
    }
  }
  finish_wide(ask, scratch, word, result);
}
