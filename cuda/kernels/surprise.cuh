// Surprise and its history, as in cuda/host/celltwin/surprise.go.
#pragma once

#include "fmath.cuh"
#include "words.cuh"

#define SURPRISE_LOWEST ((127 + SURPRISE_MIN_OCTAVE) * SURPRISE_FINE)

__device__ __forceinline__ unsigned surprise_bin(float ratio) {
  int bin = (int)(__float_as_uint(ratio) >> 18) - SURPRISE_LOWEST;
  return (unsigned)min(max(bin, 0), SURPRISE_BINS - 1);
}

// The bin of 2^x.
__device__ __forceinline__ unsigned octave_bin(float x) {
  const float one = -SURPRISE_MIN_OCTAVE * SURPRISE_FINE;
  return (unsigned)max32(0.0f, min32((float)(SURPRISE_BINS - 1), add(mul(x, (float)SURPRISE_FINE), one)));
}

__device__ __forceinline__ float surprise_ratio(unsigned bin) { return __uint_as_float((bin + SURPRISE_LOWEST) << 18); }

// The weight of a round's agents by bin, in shared memory, with a sum for every BIN_SEGMENT bins.
#define BIN_SEGMENT 16
#define BIN_SEGMENTS (SURPRISE_BINS / BIN_SEGMENT)

struct ByBin {
  unsigned bins[SURPRISE_BINS];
  unsigned segments[BIN_SEGMENTS];
};

// All threads of the block call these two; the caller synchronises before and after.
__device__ __forceinline__ void clear_bins(ByBin *b) {
  for (unsigned i = threadIdx.x; i < SURPRISE_BINS; i += blockDim.x) b->bins[i] = 0;
}

__device__ __forceinline__ void sum_segments(ByBin *b) {
  for (unsigned s = threadIdx.x; s < BIN_SEGMENTS; s += blockDim.x) {
    unsigned sum = 0;
    // own bank first
    for (unsigned i = 0; i < BIN_SEGMENT; i++) sum += b->bins[s * BIN_SEGMENT + (i + s) % BIN_SEGMENT];
    b->segments[s] = sum;
  }
}

// The highest bin that agents of at least a share (16.16) of the total weight reach. One thread.
__device__ __forceinline__ unsigned group_surprise(const ByBin *b, unsigned total, unsigned share) {
  unsigned long long want = (unsigned long long)share * total;
  unsigned reached = 0;
  for (int s = BIN_SEGMENTS - 1; s >= 0; s--) {
    if ((unsigned long long)(reached + b->segments[s]) << 16 < want) {
      reached += b->segments[s];
      continue;
    }
    for (int bin = s * BIN_SEGMENT + BIN_SEGMENT - 1; bin >= s * BIN_SEGMENT && bin > 0; bin--) {
      reached += b->bins[bin];
      if ((unsigned long long)reached << 16 >= want) return bin;
    }
  }
  return 0;
}

struct History {
  unsigned at_least[HISTORY_BINS];
  float total, excess, log_tail;
  unsigned edge;
};

struct TailShape {
  float share, expected, trust, rank_mix;
};

// Finds the tail. One thread.
__device__ __forceinline__ void fit(History *h, const TailShape &shape) {
  h->total = (float)h->at_least[0];
  float target = mul(shape.share, h->total);
  int lo = 0, hi = HISTORY_BINS;
  while (hi - lo > 1) {
    int mid = (lo + hi) / 2;
    if ((float)h->at_least[mid] > target) lo = mid; else hi = mid;
  }
  unsigned tail = 0, sum = 0;
  if (lo + 1 < HISTORY_BINS) sum = tail = h->at_least[lo + 1];
  for (int b = lo + 2; b < HISTORY_BINS && h->at_least[b] > 0; b++) sum += 2 * h->at_least[b];
  h->edge = (unsigned)(lo + 1) * (SURPRISE_FINE / HISTORY_FINE);
  // 0.043321699 is half a bin of the history in nats: ln 2 / 16.
  h->excess = quo(add(mul(shape.expected, shape.trust), mul((float)sum, 0.043321699f)), add(shape.trust, (float)tail));
  h->log_tail = log32(quo(add(h->total, 1.0f), add((float)tail, 1.0f)));
}

// The inverse of the probability of a surprise in nats.
__device__ __forceinline__ float evidence_of(float nats) {
  return exp32(max32(0.0f, min32((float)MOST_NATS, nats)));
}

// The surprise of a bin in nats, after fit, if nothing is known but the shape of the tail.
__device__ __forceinline__ float score_of(const History *h, const TailShape &shape, unsigned bin) {
  float rank = log32(quo(add(h->total, 1.0f), add((float)h->at_least[bin / (SURPRISE_FINE / HISTORY_FINE)], 0.5f)));
  if (bin < h->edge) return rank;
  // 0.021660849 is a bin in nats: ln 2 / 32.
  float tail = add(h->log_tail, quo(mul((float)(bin - h->edge), 0.021660849f), h->excess));
  return add(tail, mul(shape.rank_mix, sub(rank, tail)));
}

// The evidence of a bin, after fit: the inverse of its probability, by the blocks that reached it and by the tail.
__device__ __forceinline__ float evidence_against(const History *h, const TailShape &shape, unsigned bin) {
  const float tail = evidence_of(score_of(h, shape, bin));
  const float reached = (float)h->at_least[bin / (SURPRISE_FINE / HISTORY_FINE)];
  const float weight = quo(reached, add(reached, (float)RANK_DOUBT));
  const float seen = mul(weight, quo(add(reached, 0.5f), add(h->total, 1.0f)));
  return quo(tail, add(sub(1.0f, weight), mul(tail, seen)));
}

// The evidence of all kinds together, of which a group of few blocks knows no more than `most`.
__device__ __forceinline__ float most_evidence(float blocks) {
  const float more = add(blocks, 1.0f);
  return mul(more, more);
}

__device__ __forceinline__ float young(float evidence, float most) {
  return quo(evidence, add(1.0f, quo(evidence, most)));
}

// The evidence that young makes this one: infinite if a group does not know it yet.
__device__ __forceinline__ float grown(float evidence, float most) {
  return evidence < most ? quo(evidence, sub(1.0f, quo(evidence, most))) : __uint_as_float(0x7f800000u);
}

// What a young group takes from other groups; see kernels.PriorKnots.
__device__ const unsigned prior_from[PRIOR_AGES] = PRIOR_FROM;
__device__ const unsigned prior_at[PRIOR_AGES][PRIOR_KNOTS] = PRIOR_EVIDENCE;
__device__ const unsigned short prior_bins[PRIOR_AGES][PRIOR_KNOTS] = PRIOR_BINS;

struct Prior {
  float weight; // 0: the group is not young, or constant
  unsigned age;
};

// The prior of a group that has seen some observations, in blocks of some, whose first agent has a usual step, in log2
// of spreads.
__device__ __forceinline__ Prior prior_of(unsigned long long seen, unsigned block, float steps) {
  Prior p = {0.0f, 0};
  if (seen >= PRIOR_ROWS || steps < (float)PRIOR_STEPS) return p;
  p.weight = quo((float)(unsigned)(PRIOR_ROWS - seen), (float)(PRIOR_BLOCKS * block));
  for (unsigned age = 1; age < PRIOR_AGES; age++) {
    if (seen >= prior_from[age]) p.age = age;
  }
  return p;
}

// What the prior says of an instant surprise.
__device__ __forceinline__ float prior_evidence(const Prior &p, unsigned bin) {
  unsigned low = 0, evidence = 1, k = 0;
  for (; k < PRIOR_KNOTS && bin >= prior_bins[p.age][k]; k++) {
    low = prior_bins[p.age][k];
    evidence = prior_at[p.age][k];
  }
  if (k == PRIOR_KNOTS) return mul(p.weight, (float)evidence);
  const float part = quo((float)(bin - low), (float)(prior_bins[p.age][k] - low));
  return mul(p.weight, add((float)evidence, mul(part, (float)(prior_at[p.age][k] - evidence))));
}

// Counts the largest surprise of a block of observations and fades old ones. All threads call it with the same `first`,
// which is at_least[0] as it was before, read ahead of a synchronisation.
__device__ __forceinline__ void add_surprise(History *h, unsigned bin, unsigned first, unsigned memory) {
  bool fade = first + 1 >= memory;
  for (unsigned b = threadIdx.x; b < HISTORY_BINS; b += blockDim.x) {
    unsigned n = h->at_least[b] + (b <= bin / (SURPRISE_FINE / HISTORY_FINE) ? 1 : 0);
    h->at_least[b] = fade ? n / 2 : n;
  }
}
