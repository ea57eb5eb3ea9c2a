// region_observe: one block steps one group through its run; see cuda/host/celltwin/region.go, which does the same
// operation by operation, ratio.cuh, and kernels.ObserveParams.
#include "ratio.cuh"

#define ROUGH_FLOOR 1e-4f
#define INPUT_RIDGE 1e-3f
#define PIVOT_FLOOR 1e-6f
#define USUAL_FLOOR 0.05f

struct Region {
  enum : unsigned { latest = REGION_VAR_LATEST };
  State state;
  const float *weights;
  float front, from, learn, smooth, memory, suspicious;

  __device__ __forceinline__ Region(const State &s, const unsigned *params, const float *w, unsigned)
      : state(s), weights(w), front((float)params[LEAKY_FRONT_ROWS]), from(param(params, REGION_FROM)),
        learn(param(params, REGION_LEARN)), smooth(param(params, REGION_SMOOTH)),
        memory(param(params, REGION_MEMORY)), suspicious(param(params, LEAKY_SUSPICIOUS)) {}

  __device__ __forceinline__ void begin(unsigned) const {}

  // The squared distance of x from the mean under the covariance, by its factors L D L'.
  __device__ __forceinline__ float distance(unsigned a, const float *x, unsigned size) const {
    float lower[REGION_PAIRS], pivot[REGION_PICKS], y[REGION_PICKS], sum = 0.0f;
    for (unsigned i = 0; i < size; i++) {
      float *row = lower + i * (i + 1) / 2;
      const unsigned first = i * (i + 1) / 2;
      float v = sub(x[i], *state.agent(REGION_VAR_MEAN, i, a));
      const float variance = *state.agent(REGION_VAR_COVARIANCE, first + i, a);
      float rest = variance;
      for (unsigned j = 0; j < i; j++) {
        const float *other = lower + j * (j + 1) / 2;
        float s = *state.agent(REGION_VAR_COVARIANCE, first + j, a);
        for (unsigned k = 0; k < j; k++) s = sub(s, mul(mul(row[k], other[k]), pivot[k]));
        row[j] = quo(s, pivot[j]);
        rest = sub(rest, mul(mul(row[j], row[j]), pivot[j]));
        v = sub(v, mul(row[j], y[j]));
      }
      pivot[i] = add(add(max32(rest, 0.0f), mul(INPUT_RIDGE, variance)), PIVOT_FLOOR);
      y[i] = v;
      sum = add(sum, quo(mul(v, v), pivot[i]));
    }
    return sum;
  }

  __device__ __forceinline__ void take(unsigned a, const float *x, unsigned size, float rate) const {
    float d[REGION_PICKS];
    const float rest = sub(1.0f, rate);
    for (unsigned i = 0; i < size; i++) {
      float *mean = state.agent(REGION_VAR_MEAN, i, a);
      d[i] = sub(x[i], *mean);
      *mean = add(*mean, mul(rate, d[i]));
      for (unsigned j = 0; j <= i; j++) {
        float *c = state.agent(REGION_VAR_COVARIANCE, i * (i + 1) / 2 + j, a);
        *c = add(*c, mul(rate, sub(mul(rest, mul(d[i], d[j])), *c)));
      }
    }
  }

  __device__ __forceinline__ float step(unsigned a, const float *now, float inverse, float) const {
    const unsigned A = state.agents, size = (unsigned)weights[REGION_SIZE * A + a];
    const bool rough = weights[REGION_ROUGH * A + a] != 0.0f;
    float x[REGION_PICKS];
    for (unsigned k = 0; k < size; k++) {
      float in = now[(unsigned)weights[(REGION_FEATURE + k) * A + a]];
      if (rough) {
        float *last = state.agent(REGION_VAR_LAST, k, a);
        const float by = sub(in, *last);
        *last = in;
        in = mul(by, by);
      }
      float *filter = state.agent(REGION_VAR_FILTER, k, a);
      x[k] = add(*filter, mul(max32(inverse, weights[(REGION_RATE + k) * A + a]), sub(in, *filter)));
      *filter = x[k];
      if (rough) x[k] = log32(add(x[k], ROUGH_FLOOR));
    }
    const float seen = __ull2float_rn(*state.group64(LEAKY_VAR_ROUND));
    if (seen < front) return 0.0f;
    const float learned = sub(seen, front);
    float away = 0.0f, ratio = 0.0f, rate = 0.0f;
    float *trace = state.agent(REGION_VAR_TRACE, 0, a), *usual = state.agent(REGION_VAR_USUAL, 0, a);
    if (learned >= (float)REGION_SETTLING) {
      away = log32(add(1.0f, quo(distance(a, x, size), (float)size)));
      *trace = add(*trace, mul(smooth, sub(away, *trace)));
    }
    if (seen < learn) {
      if (seen >= from) *usual = add(*usual, quo(sub(away, *usual), add(sub(seen, from), 1.0f)));
      rate = quo(1.0f, add(learned, 1.0f));
    } else {
      ratio = quo(*trace, add(*usual, USUAL_FLOOR));
      if (ratio < suspicious) rate = memory;
    }
    if (rate > 0.0f) take(a, x, size, rate);
    return ratio;
  }
};

extern "C" __global__ void __launch_bounds__(1024)
region_observe(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
               const float *weights, const Run *runs, const long long *times, const double *features, float *scores,
               unsigned *decisions, unsigned *counts, unsigned *leaders, unsigned long long *rounds,
               unsigned char *host) {
  observe_by_ratio<Region>(pages, page_bytes, layout, params, weights, runs, times, features, scores, decisions, counts,
      leaders, rounds, host);
}
