// What the other features of a group tell of one, as in cuda/host/celltwin/relation.go.
#pragma once

#include "fmath.cuh"
#include "state.cuh"
#include "words.cuh"

#define ERROR_FLOOR 0.01f
#define GRADIENT_CLIP 4.0f
#define USUAL_CLIP 8.0f
#define RIDGE 0.1f
#define RELATION_REACH 8.0f
#define RELATION_RATE 0.005f
#define RELATION_START 0.5f

// How far feature f, of I, is from what the others tell of it, now and by the observation before. Moves its weights by
// a normalised gradient step. inverse is one over the number of observations, and rate the rate of the usual residual.
__device__ __forceinline__ float residual(const State &state, unsigned f, unsigned I, const float *now,
                                          const float *last, float inverse, float rate) {
  float predicted = 0.0f, norm = RIDGE;
  for (unsigned j = 0; j < 2 * I; j++) {
    if (j == f || j == I + f) continue;
    const float x = clamp32(j < I ? now[j] : last[j - I], RELATION_REACH);
    predicted = add(predicted, mul(*state.group(PREDICTOR_VAR_RELATION, f * 2 * I + j), x));
    norm = add(norm, mul(x, x));
  }
  const float e = sub(clamp32(now[f], RELATION_REACH), predicted);
  float *miss = state.group(PREDICTOR_VAR_MISS, f);
  const float usual = add(*miss, ERROR_FLOOR);
  const float step = mul(max32(RELATION_RATE, mul(RELATION_START, inverse)), clamp32(e, mul(GRADIENT_CLIP, usual)));
  const float gain = quo(step, norm);
  for (unsigned j = 0; j < 2 * I; j++) {
    if (j == f || j == I + f) continue;
    const float x = clamp32(j < I ? now[j] : last[j - I], RELATION_REACH);
    float *w = state.group(PREDICTOR_VAR_RELATION, f * 2 * I + j);
    *w = add(*w, mul(gain, x));
  }
  *miss = add(*miss, mul(rate, sub(min32(abs32(e), mul(USUAL_CLIP, usual)), *miss)));
  return e;
}
