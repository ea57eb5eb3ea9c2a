// leaky_observe: one block steps one group through its run; see cuda/host/celltwin/leaky.go, which does the same
// operation by operation, ratio.cuh, and kernels.ObserveParams.
#include "ratio.cuh"

struct Leaky {
  enum : unsigned { latest = LEAKY_VAR_LATEST };
  State state;
  const float *weights;
  unsigned I;

  __device__ __forceinline__ Leaky(const State &s, const unsigned *, const float *w, unsigned features)
      : state(s), weights(w), I(features) {}

  __device__ __forceinline__ void begin(unsigned) const {}

  __device__ __forceinline__ float step(unsigned a, const float *now, float inverse, float rate) const {
    const unsigned A = state.agents;
    float *potential = state.agent(LEAKY_VAR_POTENTIAL, 0, a), *mean = state.agent(LEAKY_VAR_USUAL, 0, a);
    float distance = sub(project(weights + LEAKY_PROJECT * A + a, A, now, I), *potential);
    float usual = add(*mean, ERROR_FLOOR);
    *potential = add(*potential, mul(max32(inverse, weights[LEAKY_RATE * A + a]), distance));
    *mean = add(*mean, mul(rate, sub(min32(abs32(distance), mul(USUAL_CLIP, usual)), *mean)));
    return quo(abs32(distance), usual);
  }
};

extern "C" __global__ void __launch_bounds__(1024)
leaky_observe(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
              const float *weights, const Run *runs, const long long *times, const double *features, float *scores,
              unsigned *decisions, unsigned *counts, unsigned *leaders, unsigned long long *rounds,
              unsigned char *host) {
  observe_by_ratio<Leaky>(pages, page_bytes, layout, params, weights, runs, times, features, scores, decisions, counts,
      leaders, rounds, host);
}
