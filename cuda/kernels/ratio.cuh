// What leaky, lif, gru and region have in common, as in cuda/host/celltwin/ratio.go: one block steps one group through
// its run, and an agent votes by a ratio, how unusual the observation is to it. A Cell is made of (state, params,
// weights, features) and has
//   float step(unsigned a, const float *now, float inverse, float rate)
// which moves agent a by an observation and returns its ratio,
//   void begin(unsigned group)
// which every thread calls before the first observation of a group, and the number of VarLatest as latest. All four
// have the words of leaky first in their parameter block, and round, level, spread and offset first in their state. Any
// number of threads gives the same bits.
#pragma once

#include "front.cuh"
#include "latest.cuh"
#include "state.cuh"
#include "surprise.cuh"
#include "vote.cuh"

#define ERROR_FLOOR 0.01f
#define USUAL_CLIP 8.0f

template <class Cell>
__device__ __forceinline__ void observe_by_ratio(unsigned char *pages, unsigned long long page_bytes,
                                                 const unsigned *layout, const unsigned *params, const float *weights,
                                                 const Run *runs, const long long *times, const double *features,
                                                 float *scores, unsigned *decisions, unsigned *counts,
                                                 unsigned *leaders, unsigned long long *rounds, unsigned char *host) {
  __shared__ float level[MAX_FEATURES], spread[MAX_FEATURES], now[MAX_FEATURES];
  __shared__ Tally tally;
  __shared__ ByBin by_bin;
  const Run run = runs[blockIdx.x];
  if (run.count == 0) return;
  const State state = open_state(pages, host, page_bytes, layout, run);
  const unsigned A = state.agents, I = params[LEAKY_FEATURES], thread = threadIdx.x, threads = blockDim.x;
  const Cell cell(state, params, weights, I);
  for (unsigned f = thread; f < I; f += threads) {
    level[f] = *state.group(LEAKY_VAR_LEVEL, f);
    spread[f] = *state.group(LEAKY_VAR_SPREAD, f);
  }
  unsigned long long *round = state.group64(LEAKY_VAR_ROUND);
  unsigned long long seen = *round; // every thread counts for itself; thread 0 advances the word
  if (seen == 0) cell.begin(run.group);
  const float anomalous_ratio = param(params, LEAKY_ANOMALOUS);
  __syncthreads();

  for (unsigned n = run.first; n < run.first + run.count; n++) {
    const unsigned dropped = dropped_as(state, cell.latest, params[LEAKY_DROP], &times[n], seen);
    if (dropped) {
      if (thread == 0) answer_dropped(n, dropped, seen, scores, decisions, counts, leaders, rounds);
      continue;
    }
    const float inverse = quo(1.0f, __ull2float_rn(seen + 1));
    const bool warm = seen >= params[LEAKY_WARMUP];
    const unsigned rows = params[LEAKY_FRONT_ROWS];
    const float moves = rows && seen >= rows ? 0.0f : max32(inverse, param(params, LEAKY_FRONT_RATE));
    const double *x = features + (unsigned long long)n * I;
    for (unsigned f = thread; f < I; f += threads) {
      const float v = above(x[f], (long long *)state.group64(LEAKY_VAR_OFFSET, f), &level[f], spread[f], seen);
      now[f] = see(v, &level[f], &spread[f], seen, moves, param(params, LEAKY_CLIP));
    }
    if (thread == 0) clear_tally(&tally);
    clear_bins(&by_bin);
    __syncthreads();

    const unsigned suspicious = warm ? surprise_bin(param(params, LEAKY_SUSPICIOUS)) : SURPRISE_BINS;
    const unsigned anomalous = warm ? surprise_bin(anomalous_ratio) : SURPRISE_BINS;
    const float rate = max32(inverse, param(params, LEAKY_HISTORY_RATE));
    Ballots ballots;
    ballots.clear();
    for (unsigned a = thread; a < A; a += threads) {
      unsigned bin = surprise_bin(cell.step(a, now, inverse, rate));
      atomicAdd(&by_bin.bins[bin], 1u);
      const unsigned vote = bin >= anomalous ? VOTE_ANOMALOUS : (bin >= suspicious ? VOTE_SUSPICIOUS : VOTE_NORMAL);
      ballots.vote(a, vote, vote == VOTE_NORMAL ? 1 : params[LEAKY_LOUD], 1, bin);
    }
    cast(&tally, ballots);
    __syncthreads();
    sum_segments(&by_bin);
    __syncthreads();

    if (thread == 0) {
      float score = 0.0f;
      if (warm) {
        float ratio = surprise_ratio(group_surprise(&by_bin, tally.total, params[LEAKY_SHARE]));
        score = quo(ratio, add(ratio, anomalous_ratio));
      }
      scores[n] = score;
      decisions[n] = decide(&tally, params[LEAKY_RULE], params[LEAKY_QUORUM]);
      for (unsigned c = 0; c < VOTE_CANDIDATES; c++)
        counts[(unsigned long long)n * VOTE_CANDIDATES + c] = tally.counts[c];
      leaders[n] = leader_of(&tally);
      rounds[n] = elect_round(round, seen);
      keep_latest(state, cell.latest, params[LEAKY_DROP], times[n], seen);
    }
    __syncthreads();
    seen++;
  }
  for (unsigned f = thread; f < I; f += threads) {
    *state.group(LEAKY_VAR_LEVEL, f) = level[f];
    *state.group(LEAKY_VAR_SPREAD, f) = spread[f];
  }
}
