// The outcome of a vote under a rule, as consensus.Decide has it where nobody abstains or no abstention counts.
#pragma once

#include "words.cuh"

// The candidate with the most votes, the smallest index of several, or 0xffffffff when the rule asks for more than it
// got, or nobody has a vote. quorum is a fraction of 65536; 0, which is no quorum, asks for one vote.
__device__ __forceinline__ unsigned decision(const unsigned *counts, unsigned candidates, unsigned rule,
    unsigned quorum) {
  // Every count is read once, and no read waits for what another one has found.
  unsigned winner = 0, most = counts[0];
  unsigned long long total = most;
#pragma unroll 4
  for (unsigned c = 1; c < candidates; c++) {
    const unsigned n = counts[c];
    total += n;
    if (n > most) most = n, winner = c;
  }
  const unsigned long long votes = most;
  bool met = votes > 0;
  if (rule == RULE_MAJORITY) met = 2 * votes > total;
  if (rule == RULE_QUORUM) met = votes > 0 && votes << 16 >= (unsigned long long)quorum * total;
  if (rule == RULE_UNANIMOUS) met = votes > 0 && votes == total;
  return met ? winner : 0xffffffffu;
}
