// The largest surprises of the visits of each half hour, as in cuda/host/celltwin/peaks.go. One thread calls a function
// for a kind, always the same one for kind k.
#pragma once

#include "fmath.cuh"
#include "state.cuh"
#include "words.cuh"

#define PEAK_RATE (1.0f / 32.0f)

// Takes in the present visit of a slot, which is over.
__device__ __forceinline__ void end_peak(const State &s, unsigned k, unsigned slot) {
  unsigned *peak = s.group32(PREDICTOR_VAR_PEAK, k), *two = s.group32(PREDICTOR_VAR_PEAKS, slot * PREDICTOR_KINDS + k);
  *two = *two << 16 | *peak;
  float *usual = s.group(PREDICTOR_VAR_PEAK_USUAL, k);
  if (*usual == 0.0f) *usual = (float)*peak;
  *usual = add(*usual, mul(PEAK_RATE, sub((float)*peak, *usual)));
  *peak = 0;
}

// The bins that are usual in a slot.
__device__ __forceinline__ unsigned usual_bins(const State &s, unsigned k, unsigned slot) {
  const unsigned two = *s.group32(PREDICTOR_VAR_PEAKS, slot * PREDICTOR_KINDS + k);
  const float both = (float)min(two & 0xffffu, two >> 16);
  return (unsigned)max32(0.0f, sub(both, *s.group(PREDICTOR_VAR_PEAK_USUAL, k)));
}

// Takes in the surprise of the group, from which shift was taken.
__device__ __forceinline__ void learn_peak(const State &s, unsigned k, unsigned bin, unsigned shift) {
  unsigned *peak = s.group32(PREDICTOR_VAR_PEAK, k);
  *peak = max(*peak, min(bin + shift, (unsigned)SURPRISE_BINS - 1));
}
