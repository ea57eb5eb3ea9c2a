// Decides tallies by vote.cuh on the CPU, for tests on machines without a GPU. Compile with -DFILE_UNDER_TEST="...",
// the path of vote.cuh.
//
// usage: decide FILE: reads uint32 words {rule, quorum, counts[VOTE_CANDIDATES]} to the end, and writes a winner for
// each to the standard output.
#include <cstdio>

struct Index {
  unsigned x;
};
static Index threadIdx, blockDim;
#define __device__
#define __forceinline__ inline
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned) { return v; }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { return *p += v; }
static inline unsigned long long atomicMax(unsigned long long *p, unsigned long long v) { return *p = *p > v ? *p : v; }
static inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long want, unsigned long long v) {
  const unsigned long long old = *p;
  if (old == want) *p = v;
  return old;
}

#include FILE_UNDER_TEST

int main(int, char **argv) {
  FILE *f = fopen(argv[1], "rb");
  if (!f) return 1;
  unsigned words[2 + VOTE_CANDIDATES];
  while (fread(words, sizeof words, 1, f) == 1) {
    Tally t;
    clear_tally(&t);
    for (int c = 0; c < VOTE_CANDIDATES; c++) t.counts[c] = words[2 + c];
    const unsigned winner = decide(&t, words[0], words[1]);
    fwrite(&winner, 4, 1, stdout);
  }
  return fclose(f);
}
