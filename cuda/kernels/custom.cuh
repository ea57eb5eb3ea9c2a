// The frame of a custom cell's kernel: what surrounds the step that a user has written (custom.go puts the two
// together, and RFC 0014 says what for). One block steps one group through its run, as ratio.cuh does; any number of
// threads gives the same bits where the step itself is a function of what it is handed. A Cell has
//   typename Agent, Params                              what the step sees of an agent, and the parameters
//   static Params params(const unsigned *words)
//   static void load(const State &, unsigned a, Agent &), store(const State &, unsigned a, const Agent &)
//   static Ballot step(Agent &, const Params &, const Observation &)
// The state begins with round, level and spread of the group. CUSTOM_CANDIDATES and the words CUSTOM_* are defined
// before.
#pragma once

#include "front.cuh"
#include "philox.cuh"
#include "state.cuh"
#include "surprise.cuh"

#undef VOTE_CANDIDATES
#define VOTE_CANDIDATES CUSTOM_CANDIDATES

#include "latest.cuh"
#include "vote.cuh"

// What the step hands back.
struct Ballot {
  unsigned candidate;      // the vote; at or beyond the number of candidates the agent abstains
  // how unusual the observation is to the agent, as a ratio to what is usual; negative: it does not say
  float surprise = -1.0f;
  unsigned weight = 1;     // of the vote under the rule weighted, cut at 8192
};

enum : unsigned { abstain = 0xffffffffu };

// What the step sees of an observation: the same for all agents of the group.
struct Observation {
  const float *features;    // [count]: as they came, in 32 bits; finite
  const float *spreads;     // [count]: their distances from the group's running level, in its running spreads
  unsigned count;           // I
  long long time;           // unix nanoseconds
  unsigned long long round; // observations of the group before this one
};

// What every Agent begins with: its index, and random numbers in [0, 1), multiples of 2^-24, which depend on the
// swarm's seed, the index and, for uniform, the round, and on nothing else. fixed(k) is number k of the generator that
// built-in cells draw their weights from.
struct Numbers {
  unsigned index; // inside its group

  __device__ __forceinline__ float fixed(unsigned k) const { return unit_of(philox(key0, key1, k, index, 0, 0)); }
  __device__ __forceinline__ float uniform() {
    const unsigned long long r = round + 1; // fixed has round 0
    return unit_of(philox(key0, key1, drawn++, index, (unsigned)r, (unsigned)(r >> 32)));
  }
  __device__ __forceinline__ void open(const float *weights, unsigned a, unsigned long long seen) {
    index = a;
    key0 = seed_key(weights);
    key1 = seed_key(weights + 2);
    round = seen;
    drawn = 0;
  }

private:
  unsigned key0, key1, drawn;
  unsigned long long round;
};

// Component c of an agent variable of type T.
template <class T> __device__ __forceinline__ T *element(const State &s, unsigned v, unsigned c, unsigned a) {
  return (T *)(s.page + s.offsets[v]) + ((c * s.slots + s.slot) * s.agents + a);
}

// bf16 is the upper half of a float, rounded to the nearest, ties to even.
__device__ __forceinline__ float of_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
__device__ __forceinline__ unsigned short to_bf16(float v) {
  const unsigned u = __float_as_uint(v);
  if (v != v) return (unsigned short)(u >> 16 | 0x40u);
  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

template <class Cell>
__device__ __forceinline__ void observe_custom(unsigned char *pages, unsigned long long page_bytes,
                                               const unsigned *layout, const unsigned *params, const float *weights,
                                               const Run *runs, const long long *times, const double *features,
                                               float *scores, unsigned *decisions, unsigned *counts, unsigned *leaders,
                                               unsigned long long *rounds, unsigned char *host) {
  __shared__ float level[MAX_FEATURES], spread[MAX_FEATURES], now[MAX_FEATURES], raw[MAX_FEATURES];
  __shared__ Tally tally;
  __shared__ ByBin by_bin;
  const Run run = runs[blockIdx.x];
  if (run.count == 0) return;
  const State state = open_state(pages, host, page_bytes, layout, run);
  const unsigned A = state.agents, I = params[CUSTOM_FEATURES], thread = threadIdx.x, threads = blockDim.x;
  const bool weighted = params[CUSTOM_RULE] == RULE_WEIGHTED;
  const typename Cell::Params own = Cell::params(params + CUSTOM_WORDS);
  for (unsigned f = thread; f < I; f += threads) {
    level[f] = *state.group(CUSTOM_VAR_LEVEL, f);
    spread[f] = *state.group(CUSTOM_VAR_SPREAD, f);
  }
  unsigned long long *round = state.group64(CUSTOM_VAR_ROUND);
  unsigned long long seen = *round; // every thread counts for itself; thread 0 advances the word
  __syncthreads();

  for (unsigned n = run.first; n < run.first + run.count; n++) {
    const unsigned dropped = dropped_as(state, CUSTOM_VAR_LATEST, params[CUSTOM_DROP], &times[n], seen);
    if (dropped) {
      if (thread == 0) answer_dropped(n, dropped, seen, scores, decisions, counts, leaders, rounds);
      continue;
    }
    const double *x = features + (unsigned long long)n * I;
    const float rate = max32(quo(1.0f, __ull2float_rn(seen + 1)), param(params, CUSTOM_FRONT_RATE));
    for (unsigned f = thread; f < I; f += threads) {
      raw[f] = (float)x[f];
      const float v = above(x[f], (long long *)state.group64(CUSTOM_VAR_OFFSET, f), &level[f], spread[f], seen);
      now[f] = see(v, &level[f], &spread[f], seen, rate, param(params, CUSTOM_CLIP));
    }
    if (thread == 0) clear_tally(&tally);
    clear_bins(&by_bin);
    __syncthreads();

    Ballots ballots;
    ballots.clear();
    for (unsigned a = thread; a < A; a += threads) {
      const Observation seen_by_all = {raw, now, I, times[n], seen};
      typename Cell::Agent agent;
      agent.open(weights, a, seen);
      Cell::load(state, a, agent);
      const Ballot b = Cell::step(agent, own, seen_by_all);
      Cell::store(state, a, agent);
      const bool says = b.surprise >= 0.0f;
      const unsigned bin = says ? surprise_bin(b.surprise > 0.0f ? b.surprise : 0.0f) : 0; // -0 is 0
      if (says) atomicAdd(&by_bin.bins[bin], 1u);
      const unsigned weight = b.weight < MAX_VOTE_WEIGHT ? b.weight : MAX_VOTE_WEIGHT;
      ballots.vote(a, b.candidate, weighted ? weight : 1, says, bin);
    }
    cast(&tally, ballots);
    __syncthreads();
    sum_segments(&by_bin);
    __syncthreads();

    if (thread == 0) {
      float score = 0.0f;
      if (seen >= params[CUSTOM_WARMUP] && tally.total > 0) {
        const float ratio = surprise_ratio(group_surprise(&by_bin, tally.total, params[CUSTOM_SHARE]));
        score = quo(ratio, add(ratio, param(params, CUSTOM_HALF)));
      }
      scores[n] = score;
      decisions[n] = decide(&tally, params[CUSTOM_RULE], params[CUSTOM_QUORUM]);
      for (unsigned c = 0; c < VOTE_CANDIDATES; c++)
        counts[(unsigned long long)n * VOTE_CANDIDATES + c] = tally.counts[c];
      leaders[n] = leader_of(&tally);
      rounds[n] = elect_round(round, seen);
      keep_latest(state, CUSTOM_VAR_LATEST, params[CUSTOM_DROP], times[n], seen);
    }
    __syncthreads();
    seen++;
  }
  for (unsigned f = thread; f < I; f += threads) {
    *state.group(CUSTOM_VAR_LEVEL, f) = level[f];
    *state.group(CUSTOM_VAR_SPREAD, f) = spread[f];
  }
}
