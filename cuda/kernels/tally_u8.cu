// tally_u8_5, _8 and _16 count ballots of one byte for up to so many candidates, find the leader, decide and close the
// round in one launch; see kernels.TallyParams, and consensus for what each of these means. The ballots are counted by
// bit planes in registers: about two integer operations a ballot for 5 candidates.
#include "tally.cuh"

#ifndef TALLY
#define TALLY tally_u8_16
#define PLANES 16
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
  const Split s = split(ballots, ask.n);
  count_body<PLANES, false>(walk((unsigned)s.vectors, blockIdx.x, gridDim.x), s.body, (unsigned)s.vectors, &b);
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1 && s.head + s.tail > 0) {
    b.bytes(gather(ballots, s.head), gather((const unsigned char *)(s.body + s.vectors), s.tail));
    b.abstain -= 32 - s.head - s.tail;
  }
  conclude<PLANES>(ask, b, PLANES, key, &board, scratch, word, result);
}
