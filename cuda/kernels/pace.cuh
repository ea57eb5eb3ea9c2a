// What a group knows of the intervals between its observations, as in cuda/host/celltwin/pace.go.
#pragma once

#include "fmath.cuh"
#include "state.cuh"
#include "words.cuh"

#define PACE_REACH 1.2f
#define PACE_MARGIN 0.1f
#define PACE_DOUBT 4.0f
#define PACE_WIDEN 0.25f
#define PACE_MOST 4.0f
#define PACE_YOUNG 128.0f
#define PACE_FORGET (1.0f / 16384.0f)
#define PACE_RATE (1.0f / 32.0f)
#define PACE_SHORT 1.0f
#define PACE_GAIN 2.0f

// In shared memory; one thread calls its methods.
struct Pace {
  long long time;
  float interval, widest[2], known;

  __device__ __forceinline__ void load(const State &s) {
    time = *(const long long *)s.group64(PREDICTOR_VAR_TIME);
    interval = *s.group(PREDICTOR_VAR_INTERVAL, 0);
    for (int i = 0; i < 2; i++) widest[i] = *s.group(PREDICTOR_VAR_WIDEST, i);
    known = *s.group(PREDICTOR_VAR_KNOWN, 0);
  }

  __device__ __forceinline__ void store(const State &s) const {
    *(long long *)s.group64(PREDICTOR_VAR_TIME) = time;
    *s.group(PREDICTOR_VAR_INTERVAL, 0) = interval;
    for (int i = 0; i < 2; i++) *s.group(PREDICTOR_VAR_WIDEST, i) = widest[i];
    *s.group(PREDICTOR_VAR_KNOWN, 0) = known;
  }

  __device__ __forceinline__ void see(long long t, float inverse, unsigned block, float blocks) {
    known = min32(add(known, quo(PACE_GAIN, (float)block)), blocks);
    if (inverse == 1.0f) time = t;
    if (t == time) return;
    const unsigned long long now = (unsigned long long)t, before = (unsigned long long)time;
    const float l = log32(__ull2float_rn(t > time ? now - before : before - now));
    time = t;
    if (interval == 0.0f) interval = l;
    const float d = max32(-PACE_SHORT, sub(l, interval));
    float *range = &widest[d < 0.0f];
    const float off = sub(sub(abs32(d), mul(PACE_REACH, *range)), PACE_MARGIN);
    if (off > 0.0f) {
      known = quo(known, exp32(min32(80.0f, mul(PACE_DOUBT, off))));
      const float part = max32(PACE_WIDEN, min32(1.0f, mul(PACE_YOUNG, inverse)));
      *range = add(*range, mul(part, min32(off, PACE_MOST)));
    } else {
      *range = sub(*range, mul(PACE_FORGET, *range));
    }
    interval = add(interval, mul(max32(PACE_RATE, inverse), min32(d, 1.0f)));
  }
};
