// lif_observe: one block steps one group through its run; see cuda/host/celltwin/lif.go, which does the same operation
// by operation, ratio.cuh, and kernels.ObserveParams.
#include "ratio.cuh"

#define RATE_FLOOR 0.05f

struct Lif {
  enum : unsigned { latest = LIF_VAR_LATEST };
  State state;
  const float *weights;
  unsigned I;
  float jump, fade;

  __device__ __forceinline__ Lif(const State &s, const unsigned *params, const float *w, unsigned features)
      : state(s), weights(w), I(features), jump(param(params, LIF_ADAPT)), fade(param(params, LIF_ADAPT_DECAY)) {}

  __device__ __forceinline__ void begin(unsigned) const {}

  __device__ __forceinline__ float step(unsigned a, const float *now, float inverse, float rate) const {
    const unsigned A = state.agents;
    float *potential = state.agent(LIF_VAR_POTENTIAL, 0, a), *adaptation = state.agent(LIF_VAR_ADAPTATION, 0, a);
    float *trace = state.agent(LIF_VAR_TRACE, 0, a), *mean = state.agent(LIF_VAR_USUAL, 0, a);
    float current = mul(weights[LIF_GAIN * A + a], abs32(project(weights + LIF_PROJECT * A + a, A, now, I)));
    float v = add(*potential, mul(max32(inverse, weights[LIF_LEAK * A + a]), sub(current, *potential)));
    float threshold = add(1.0f, *adaptation);
    float spikes = (float)(unsigned)min32(quo(v, threshold), (float)LIF_BURST);
    *potential = min32(sub(v, mul(spikes, threshold)), threshold);
    *adaptation = add(sub(*adaptation, mul(fade, *adaptation)), mul(jump, spikes));
    float fast = add(*trace, mul(max32(inverse, weights[LIF_TRACE * A + a]), sub(spikes, *trace)));
    *trace = fast;
    float usual = add(*mean, RATE_FLOOR);
    *mean = add(*mean, mul(rate, sub(min32(fast, mul(USUAL_CLIP, usual)), *mean)));
    return quo(fast, usual);
  }
};

extern "C" __global__ void __launch_bounds__(1024)
lif_observe(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
            const float *weights, const Run *runs, const long long *times, const double *features, float *scores,
            unsigned *decisions, unsigned *counts, unsigned *leaders, unsigned long long *rounds, unsigned char *host) {
  observe_by_ratio<Lif>(pages, page_bytes, layout, params, weights, runs, times, features, scores, decisions, counts,
      leaders, rounds, host);
}
