// tally_u8_5, _8 and _16 count ballots of one byte for up to 5, 8 and 16 candidates, find the leader, decide and close
// the round in one launch; see kernels.TallyArgs, and consensus for what each of these means. The ballots are counted
// by bit planes in registers: about two integer operations a ballot for 5 candidates. tally_u4_5 and _8 are the same
// for ballots of half a byte: the even one of a byte is its low half.
#include "tally.cuh"

#ifndef TALLY
#define TALLY tally_u8_16
#define PLANES 16
#define NIBBLES 0
#endif

extern "C" __global__ void __launch_bounds__(TALLY_THREADS, 2)
TALLY(const unsigned char *ballots, unsigned long long first, unsigned long long n, unsigned candidates,
      const unsigned *priorities, unsigned flags, unsigned rule, unsigned of_all, unsigned num, unsigned den,
      unsigned long long seen, unsigned long long round, unsigned sequence, unsigned long long *scratch,
      unsigned long long *word, unsigned long long *result) {
  __shared__ Board board;
  const Ask ask = {candidates, flags, rule, of_all, num, den, sequence, n, seen, round};
  ballots += first;
  const u64 key = electorate_key(ask, priorities);
  Ballots<PLANES> b;
  b.clear();
#if NIBBLES
  const Split s = split(ballots, ask.n / 2);
  count_body<PLANES, true>(walk((unsigned)s.vectors, blockIdx.x, gridDim.x), s.body, (unsigned)s.vectors, &b);
  const unsigned odd = (unsigned)(ask.n % 2);
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1 && s.head + s.tail + odd > 0) {
    const unsigned char *end = (const unsigned char *)(s.body + s.vectors);
    uint4 last = gather(end, s.tail);
    if (odd) { // the byte of the last ballot, whose other half is no ballot
      const unsigned half = (0xF0u | (end[s.tail] & 0xFu)) << 8 * (s.tail % 4), clear = ~(0xFFu << 8 * (s.tail % 4));
      if (s.tail / 4 == 0) last.x = (last.x & clear) | half;
      if (s.tail / 4 == 1) last.y = (last.y & clear) | half;
      if (s.tail / 4 == 2) last.z = (last.z & clear) | half;
      if (s.tail / 4 == 3) last.w = (last.w & clear) | half;
    }
    b.halves(gather(ballots, s.head));
    b.halves(last);
    b.abstain -= 64 - 2 * (s.head + s.tail) - odd;
  }
#else
  const Split s = split(ballots, ask.n);
  count_body<PLANES, false>(walk((unsigned)s.vectors, blockIdx.x, gridDim.x), s.body, (unsigned)s.vectors, &b);
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1 && s.head + s.tail > 0) {
    b.bytes(gather(ballots, s.head), gather((const unsigned char *)(s.body + s.vectors), s.tail));
    b.abstain -= 32 - s.head - s.tail;
  }
#endif
  conclude<PLANES>(ask, b, PLANES, key, &board, scratch, word, result);
}
