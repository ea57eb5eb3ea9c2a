// What becomes of an observation that comes late or twice, as in cuda/host/celltwin/latest.go. Every thread of a block
// decides for itself, and comes to the same decision.
#pragma once

#include "state.cuh"
#include "vote.cuh"

// The decision on an observation that is dropped; 0: it is applied. seen is how many were. Nothing is kept in registers
// from one observation to the next: the kernels have none to spare where nothing is dropped.
__device__ __forceinline__ unsigned dropped_as(const State &s, unsigned variable, unsigned drop, const long long *at,
    unsigned long long seen) {
  if (drop == 0 || seen == 0) return 0;
  const long long t = *at, latest = *(const long long *)s.group64(variable);
  if (t < latest && drop & DROP_LATE) return (unsigned)DROPPED_LATE;
  if (t == latest && drop & DROP_DUPLICATE) return (unsigned)DROPPED_DUPLICATE;
  return 0;
}

// Keeps the time of an observation that is applied. One thread, between two synchronisations of the block.
__device__ __forceinline__ void keep_latest(const State &s, unsigned variable, unsigned drop, long long t,
    unsigned long long seen) {
  if (drop == 0) return;
  long long *latest = (long long *)s.group64(variable);
  if (seen == 0 || t > *latest) *latest = t;
}

// What is answered to an observation that is dropped. One thread.
__device__ __forceinline__ void answer_dropped(unsigned n, unsigned dropped, unsigned long long seen, float *scores,
                                               unsigned *decisions, unsigned *counts, unsigned *leaders,
                                               unsigned long long *rounds) {
  scores[n] = 0.0f;
  decisions[n] = dropped;
  for (unsigned c = 0; c < VOTE_CANDIDATES; c++) counts[(unsigned long long)n * VOTE_CANDIDATES + c] = 0;
  leaders[n] = 0;
  rounds[n] = seen;
}
