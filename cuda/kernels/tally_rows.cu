// tally_u8_256 and tally_u4_16 are tally_u8 and tally_u4 for many candidates. The bytes are counted by a histogram in
// shared memory with a column for each lane: lanes never meet in a bank, whatever the ballots are. A byte of two
// ballots is counted as one, and the counts of its halves are the sums of rows and of columns.
#include "tally.cuh"

#ifndef TALLY
#define TALLY tally_u8_256
#define NIBBLES 0
#endif
#define LANES 32

// One byte in the histogram, whose column is the lane. The shift leaves byte k of the word at the place of a row.
#define VOTE(word, \
    k) atomicAdd((unsigned *)((char *)column + \
    ((k) == 0 ? (word) << 7 & 0x7F80u : (word) >> (8 * (k) - 7) & 0x7F80u)), 1u)

__device__ __forceinline__ void vote4(unsigned *column, unsigned word) {
  VOTE(word, 0);
  VOTE(word, 1);
  VOTE(word, 2);
  VOTE(word, 3);
}

__device__ __forceinline__ void vote16(unsigned *column, uint4 v) {
  vote4(column, v.x);
  vote4(column, v.y);
  vote4(column, v.z);
  vote4(column, v.w);
}

__device__ __forceinline__ void count_bytes(const Split &s, const unsigned char *bytes, unsigned *histogram) {
  unsigned *column = histogram + threadIdx.x % LANES;
  const unsigned vectors = (unsigned)s.vectors;
  const Walk w = walk(vectors, blockIdx.x, gridDim.x);
  unsigned i = w.at;
  const unsigned last = vectors > 3 * w.step ? vectors - 3 * w.step : 0;
  for (; i < last; i += 4 * w.step) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = __ldcg(s.body + i + k * w.step);
#pragma unroll
    for (int k = 0; k < 4; k++) vote16(column, v[k]);
  }
#pragma unroll 1
  for (; i < vectors; i += w.step) vote16(column, __ldcg(s.body + i));
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (thread < s.head) atomicAdd(&column[LANES * bytes[thread]], 1u);
  if (thread < s.tail) atomicAdd(&column[LANES * ((const unsigned char *)(s.body + s.vectors))[thread]], 1u);
}

// Adds sum ballots of a value to the grid's sums.
__device__ __forceinline__ void put(const Ask &ask, unsigned value, unsigned sum, u64 *scratch) {
  if (sum == 0) return;
  if (value < ask.candidates) atomicAdd(&scratch[TALLY_SLOTS + value], (u64)sum);
  else if (value == (NIBBLES ? 15u : 255u)) atomicAdd(&scratch[TALLY_ABSTAIN], (u64)sum);
}

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *priorities, unsigned flags, unsigned rule, unsigned of_all, unsigned num, unsigned den,
      unsigned long long seen, unsigned long long round, unsigned sequence, unsigned long long *scratch,
      unsigned long long *word, unsigned long long *result) {
  __shared__ uint4 histogram[256 * LANES / 4];
  __shared__ unsigned values[REPLY_COUNTS], halves[16];
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  ballots += first;
  for (unsigned i = threadIdx.x; i < 256 * LANES / 4; i += blockDim.x) histogram[i] = make_uint4(0, 0, 0, 0);
  if (NIBBLES && threadIdx.x < 16) halves[threadIdx.x] = 0;
  const u64 key = electorate_key(ask, priorities);
  __syncthreads();
  const Split s = split(ballots, NIBBLES ? ask.n / 2 : ask.n);
  count_bytes(s, ballots, (unsigned *)histogram);
  __syncthreads();
#pragma unroll 1
  for (unsigned v = threadIdx.x; v < 256; v += blockDim.x) {
    unsigned sum = 0;
#pragma unroll
    for (unsigned k = 0; k < LANES / 4; k++) { // each lane starts in another bank
      const uint4 q = histogram[LANES / 4 * v + (k + v) % (LANES / 4)];
      sum += q.x + q.y + q.z + q.w;
    }
    if (NIBBLES && sum) {
      atomicAdd(&halves[v % 16], sum);
      atomicAdd(&halves[v / 16], sum);
    }
    if (!NIBBLES) put(ask, v, sum, scratch);
  }
  if (NIBBLES) {
    __syncthreads();
    if (threadIdx.x < 16) put(ask, threadIdx.x, halves[threadIdx.x], scratch);
    // the last, alone in its byte
    if (ask.n % 2 && blockIdx.x == 0 && threadIdx.x == 0) put(ask, ballots[ask.n / 2] & 15, 1, scratch);
  }
  lead(ask, key, scratch);
  conclude_rows(ask, values, scratch, word, result);
}
