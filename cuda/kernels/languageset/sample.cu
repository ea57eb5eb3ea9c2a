// language_sample draws tokens; see languageset.go. A block has a draw. Sums of weights are integers, so they depend on
// no order. Tokens are ordered by keys of 64 bits: the larger logit first, then the smaller token.
#define BITS 4
#define BINS (1 << BITS)

struct Shared {
  u64 bins[SAMPLE_BLOCK / 32][BINS][32]; // a column for each lane
  u64 totals[BINS];
  u64 of_warps[SAMPLE_BLOCK / 32];
  float raw[MAX_RECENT];
};

__device__ __forceinline__ u64 sum_block(Shared *shared, u64 v) {
#pragma unroll
  for (unsigned d = 16; d > 0; d /= 2) {
    const unsigned low = __shfl_xor_sync(WARP, (unsigned)v, (int)d);
    v += (u64)__shfl_xor_sync(WARP, (unsigned)(v >> 32), (int)d) << 32 | low;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared->of_warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (unsigned w = 0; w < blockDim.x / 32; w++) v += shared->of_warps[w];
  return v;
}

__device__ __forceinline__ u64 max_block(Shared *shared, u64 v) {
#pragma unroll
  for (unsigned d = 16; d > 0; d /= 2) {
    const unsigned low = __shfl_xor_sync(WARP, (unsigned)v, (int)d);
    const u64 other = (u64)__shfl_xor_sync(WARP, (unsigned)(v >> 32), (int)d) << 32 | low;
    if (other > v) v = other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared->of_warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (unsigned w = 0; w < blockDim.x / 32; w++)
    if (shared->of_warps[w] > v) v = shared->of_warps[w];
  return v;
}

// The order of float32 as the order of words.
__device__ __forceinline__ unsigned order_of(float v) {
  const unsigned bits = __float_as_uint(v);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of(unsigned order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

__device__ __forceinline__ u64 key_of(float v, unsigned token) {
  return (u64)order_of(v) << 32 | (0xffffffffu - token);
}

__device__ __forceinline__ u64 weight_of(float v, float largest) {
  return (u64)mul(power_of_e(sub(v, largest)), WEIGHT_SCALE);
}

// The key down to which the amounts of the largest keys reach a target, which is at most the sum of all.
template <class Key, class Amount>
__device__ __forceinline__ u64 cut_of(Shared *shared, unsigned count, u64 target, Key key, Amount amount) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  u64 prefix = 0;
  for (int shift = 64 - BITS; shift >= 0; shift -= BITS) {
    if (shift < 32 && (count - 1) >> shift == 0) { // the same in all tokens
      prefix = prefix << BITS | (BINS - 1);
      continue;
    }
    for (int b = 0; b < BINS; b++) shared->bins[warp][b][lane] = 0;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
      const u64 k = key(i) >> shift;
      if (shift == 64 - BITS || k >> BITS == prefix) shared->bins[warp][k % BINS][lane] += amount(i);
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
      u64 total = 0;
      for (unsigned w = 0; w < blockDim.x / 32; w++) {
        for (unsigned l = 0; l < 32; l++) total += shared->bins[w][threadIdx.x][l];
      }
      shared->totals[threadIdx.x] = total;
    }
    __syncthreads();
    unsigned digit = BINS - 1;
    for (; digit > 0 && shared->totals[digit] < target; digit--) target -= shared->totals[digit];
    prefix = prefix << BITS | digit;
  }
  return prefix;
}

extern "C" __global__ void __launch_bounds__(256)
language_sample(float *logits, unsigned vocabulary, const unsigned *draws, unsigned count, unsigned *tokens) {
  __shared__ Shared shared;
  for (unsigned d = blockIdx.x; d < count; d += gridDim.x) {
    __syncthreads();
    float *of = logits + (u64)d * vocabulary;
    const unsigned *draw = draws + (u64)d * DRAW_WORDS, *recent = draw + DRAW_RECENT;
    const auto most = [&] {
      u64 key = 0;
      for (unsigned i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        const u64 k = key_of(of[i], i);
        if (k > key) key = k;
      }
      return max_block(&shared, key);
    };
    // The sum of all likelihoods, before sampling.
    u64 best = most();
    const float largest = value_of((unsigned)(best >> 32));
    u64 sum = 0;
    for (unsigned i = threadIdx.x; i < vocabulary; i += blockDim.x) sum += weight_of(of[i], largest);
    const u64 raw_sum = sum_block(&shared, sum);
    const unsigned recents = draw[DRAW_COUNT];
    const float repetition = __uint_as_float(draw[DRAW_REPETITION]);
    for (unsigned i = threadIdx.x; i < recents; i += blockDim.x) shared.raw[i] = of[recent[i]];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < recents; i += blockDim.x) {
      bool first = true;
      for (unsigned k = 0; first && k < i; k++) first = recent[k] != recent[i];
      const float v = shared.raw[i];
      if (first) of[recent[i]] = v > 0.0f ? quo(v, repetition) : mul(v, repetition);
    }
    __syncthreads();
    if (recents > 0) best = most();
    const float temperature = __uint_as_float(draw[DRAW_TEMPERATURE]);
    if (temperature > 0.0f) {
      const float top_p = __uint_as_float(draw[DRAW_TOP_P]), min_p = __uint_as_float(draw[DRAW_MIN_P]);
      const unsigned top_k = draw[DRAW_TOP_K];
      const float top = quo(value_of((unsigned)(best >> 32)), temperature);
      const auto key = [&](unsigned i) { return key_of(quo(of[i], temperature), i); };
      const auto weight = [&](unsigned i) { return weight_of(quo(of[i], temperature), top); };
      u64 cut = 0; // the least key that is left
      if (top_k > 0 && top_k < vocabulary) cut = cut_of(&shared, vocabulary, top_k, key, [](unsigned) { return 1ull; });
      const auto total = [&](u64 least) {
        u64 all = 0;
        for (unsigned i = threadIdx.x; i < vocabulary; i += blockDim.x) {
          const u64 w = weight(i);
          if (w >= least && key(i) >= cut) all += w;
        }
        return sum_block(&shared, all);
      };
      if (top_p > 0.0f && top_p < 1.0f) {
        const u64 target = (u64)((double)top_p * (double)total(0));
        cut = cut_of(&shared, vocabulary, target > 0 ? target : 1, key,
                     [&](unsigned i) { return key(i) >= cut ? weight(i) : 0ull; });
      }
      const u64 least = (u64)mul(min_p, WEIGHT_SCALE), left = total(least);
      const unsigned *seed = draw + DRAW_SEED, *agent = draw + DRAW_AGENT;
      const u64 random = (u64)philox(seed[0], seed[1], 1, agent[0], agent[1], draw[DRAW_POSITION]) << 32 |
                         philox(seed[0], seed[1], 0, agent[0], agent[1], draw[DRAW_POSITION]);
      best = cut_of(&shared, vocabulary, __umul64hi(random, left) + 1, key, [&](unsigned i) {
        const u64 w = weight(i);
        return w >= least && key(i) >= cut ? w : 0ull;
      });
    }
    if (threadIdx.x == 0) {
      const unsigned token = 0xffffffffu - (unsigned)best;
      float v = of[token];
      for (unsigned i = 0; i < recents; i++)
        if (recent[i] == token) v = shared.raw[i];
      const float likely = mul((float)raw_sum, 1.0f / WEIGHT_SCALE);
      tokens[2 * d] = token;
      tokens[2 * d + 1] = __float_as_uint(sub(sub(v, largest), log32(likely)));
    }
  }
}
