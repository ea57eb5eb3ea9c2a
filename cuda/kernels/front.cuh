// What all agents of a group see of an observation, as in cuda/host/celltwin/front.go.
#pragma once

#include "fmath.cuh"
#include "state.cuh"
#include "words.cuh"

#define LARGEST 1e36f
#define EAGER 20
#define SETTLING 5
#define JOLT 0.015625f
#define HABIT_CLIP 3.0f
#define LEAST_OFFSET 65536
#define OFFSET_SPREADS 1024
#define OFFSET_RANGE 2305843009213693952ll // 2^61

// The offset of a feature of this size: 0 for small ones.
__device__ __forceinline__ long long offset_of(double v) {
  const double size = v < 0.0 ? -v : v;
  return size >= (double)LEAST_OFFSET && size < (double)OFFSET_RANGE ? (long long)v : 0;
}

// A feature above its offset. The first observation sets the offset, and it follows the level.
__device__ __forceinline__ float above(double v, long long *offset, float *level, float spread,
    unsigned long long round) {
  if (round == 0) {
    *offset = offset_of(v);
  } else if (round >= EAGER && abs32(*level) > mul((float)OFFSET_SPREADS, spread)) {
    const long long by = offset_of((double)*level), to = *offset + by;
    if (to < OFFSET_RANGE && to > -OFFSET_RANGE) {
      *offset = to;
      *level = sub(*level, (float)by);
    }
  }
  return (float)(v - (double)*offset);
}

// One feature in spreads; moves its level and spread.
__device__ __forceinline__ float see(float v, float *level, float *spread, unsigned long long round, float rate,
    float clip) {
  v = v != v ? *level : clamp32(v, LARGEST);
  if (round == 0) {
    *level = v;
    *spread = 0.0f;
  }
  float unit = add(add(*spread, mul(1e-6f, abs32(*level))), 1e-30f);
  float d = sub(v, *level);
  float limit = mul(clip, unit), r = rate, u;
  if (abs32(d) < limit) {
    u = quo(d, unit);
  } else {
    u = d < 0.0f ? -clip : clip;
    if (round >= EAGER) {
      d = clamp32(d, limit);
      r = max32(r, JOLT);
    }
  }
  if (round < SETTLING) u = 0.0f;
  *level = add(*level, mul(r, d));
  *spread = add(*spread, mul(r, sub(mul(1.25f, abs32(d)), *spread)));
  return u;
}

// The half hour of a time, counted from HABIT_WEEKS weeks before 1970.
__device__ __forceinline__ unsigned half_of(long long t) {
  const long long width = 86400000000000ll / DAY_SLOTS;
  return (unsigned)(t / width - (t % width < 0) + HABIT_WEEKS * 2 * WEEK_SLOTS);
}

// An agent's view of a vector of features: the sum of products with its direction, whose components stand `agents`
// apart.
__device__ __forceinline__ float project(const float *direction, unsigned agents, const float *x, unsigned features) {
  float sum = 0.0f;
  for (unsigned f = 0; f < features; f++) sum = add(sum, mul(direction[f * agents], x[f]));
  return sum;
}
