// The outcome of a vote under a rule, as consensus.Decide has it where nobody abstains or those who do are not counted.
#pragma once

#include "words.cuh"

// The candidate with the most votes, the smallest index of several, or 0xffffffff when the rule asks for more than it got, or
// nobody has a vote. quorum is a fraction of 65536; 0, which is no quorum, asks for one vote.
__device__ __forceinline__ unsigned decision(const unsigned *counts, unsigned candidates, unsigned rule, unsigned quorum) {
  unsigned winner = 0;
  unsigned long long total = 0;
  for (unsigned c = 0; c < candidates; c++) {
    total += counts[c];
    if (counts[c] > counts[winner]) winner = c;
  }
  unsigned long long votes = counts[winner];
  bool met = votes > 0;
  if (rule == RULE_MAJORITY) met = 2 * votes > total;
  if (rule == RULE_QUORUM) met = votes > 0 && votes << 16 >= (unsigned long long)quorum * total;
  if (rule == RULE_UNANIMOUS) met = votes > 0 && votes == total;
  return met ? winner : 0xffffffffu;
}
