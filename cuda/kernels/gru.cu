// gru_observe: one block steps one group through its run; see cuda/host/celltwin/gru.go, which does the same operation
// by operation, ratio.cuh, and kernels.ObserveParams. The threads of a block read the shared weights at the same
// addresses at once.
#include "philox.cuh"
#include "ratio.cuh"

#define REACH 3.0f
#define GRADIENT_CLIP 4.0f
#define RIDGE 0.1f
#define LARGEST_READOUT 1e4f

__device__ __forceinline__ float sigmoid32(float x) { return add(0.5f, mul(0.5f, tanh32(mul(0.5f, x)))); }

struct Gru {
  State state;
  const float *shared, *weights; // of all agents of the group, of each
  const unsigned *params;
  const float *seed; // of groups that have weights of their own
  unsigned I, H, latest;
  float learn;

  __device__ __forceinline__ Gru(const State &s, const unsigned *p, const float *w, unsigned features)
      : state(s), shared(w), params(p), seed(w), I(features), H(p[GRU_HIDDEN]), latest(GRU_VAR_WEIGHTS),
          learn(param(p, GRU_LEARN)) {
    const unsigned n = GRU_GATES * H * (H + 2);
    weights = w + n;
    if (p[GRU_OWN]) {
      shared = s.row(GRU_VAR_WEIGHTS, n);
      weights = w + SEED_WORDS;
      latest++;
    }
  }

  // Draws the weights of a group that has its own.
  __device__ __forceinline__ void begin(unsigned group) const {
    if (!params[GRU_OWN]) return;
    const unsigned n = GRU_GATES * H * (H + 2), key0 = seed_key(seed), key1 = seed_key(seed + 2);
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
      const unsigned place = i % (H + 2), gate = i / (H + 2) / H;
      const unsigned reach = place < H ? GRU_UNITS_REACH
          : (place == H ? GRU_INPUT_REACH : (gate == GRU_UPDATE ? GRU_UPDATE_REACH : GRU_BIAS_REACH));
      const float u = unit_of(philox(key0, key1, i, 0xffffffffu, group, 1));
      const_cast<float *>(shared)[i] = mul(sub(mul(2.0f, u), 1.0f), param(params, reach));
    }
  }

  // The units' part of the sum of a gate, and the input's.
  __device__ __forceinline__ const float *row(unsigned gate, unsigned j) const {
    return shared + (gate * H + j) * (H + 2);
  }
  __device__ __forceinline__ float units(const float *row, const float *h) const {
    float sum = 0.0f;
    for (unsigned k = 0; k < H; k++) sum = add(sum, mul(row[k], h[k]));
    return sum;
  }
  __device__ __forceinline__ float input(const float *row, float x) const { return add(row[H + 1], mul(row[H], x)); }

  __device__ __forceinline__ float step(unsigned a, const float *now, float inverse, float rate) const {
    const unsigned A = state.agents;
    float h[GRU_MOST_HIDDEN];
    float *last = state.agent(GRU_VAR_LAST, 0, a), *mean = state.agent(GRU_VAR_USUAL, 0, a);
    float predicted = 0.0f, norm = RIDGE, square = 0.0f;
    for (unsigned j = 0; j <= H; j++) {
      float x = *last, w = *state.agent(GRU_VAR_READOUT, j, a);
      if (j < H) x = h[j] = *state.agent(GRU_VAR_HIDDEN, j, a);
      predicted = add(predicted, mul(w, x));
      norm = add(norm, mul(x, x));
      square = add(square, mul(w, w));
    }
    float view = project(weights + GRU_PROJECT * A + a, A, now, I);
    float e = sub(view, predicted);
    float usual = add(*mean, ERROR_FLOOR);
    float gain = quo(mul(learn, clamp32(e, mul(GRADIENT_CLIP, usual))), norm);
    for (unsigned j = 0; j <= H; j++) {
      float *w = state.agent(GRU_VAR_READOUT, j, a);
      *w = square > LARGEST_READOUT ? 0.0f : add(*w, mul(gain, j < H ? h[j] : *last));
    }
    *mean = add(*mean, mul(rate, sub(min32(abs32(e), mul(USUAL_CLIP, usual)), *mean)));
    *last = clamp32(view, REACH);
    float x = add(weights[GRU_OFFSET * A + a], mul(weights[GRU_GAIN * A + a], *last));
    for (unsigned j = 0; j < H; j++) {
      const float *update = row(GRU_UPDATE, j), *reset = row(GRU_RESET, j), *fresh = row(GRU_NEW, j);
      float z = sigmoid32(add(input(update, x), units(update, h)));
      float r = sigmoid32(add(input(reset, x), units(reset, h)));
      float n = tanh32(add(input(fresh, x), mul(r, units(fresh, h))));
      *state.agent(GRU_VAR_HIDDEN, j, a) = add(n, mul(z, sub(h[j], n)));
    }
    return quo(abs32(e), usual);
  }
};

extern "C" __global__ void __launch_bounds__(1024)
gru_observe(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
            const float *weights, const Run *runs, const long long *times, const double *features, float *scores,
            unsigned *decisions, unsigned *counts, unsigned *leaders, unsigned long long *rounds, unsigned char *host) {
  observe_by_ratio<Gru>(pages, page_bytes, layout, params, weights, runs, times, features, scores, decisions, counts,
      leaders, rounds, host);
}
