// predictor_observe: one block steps one group through its run; see cuda/host/celltwin/predictor.go, which does the
// same operation by operation, and kernels.ObserveParams. Any number of threads gives the same bits. With a thread to
// each agent, agents live in registers for the whole run; with fewer threads they go back to the page after every
// observation.
#include "fmath.cuh"
#include "front.cuh"
#include "latest.cuh"
#include "pace.cuh"
#include "peaks.cuh"
#include "relation.cuh"
#include "state.cuh"
#include "surprise.cuh"
#include "vote.cuh"

#define REACH 3.0f
#define DRIFT_FLOOR 0.005f
#define LARGEST_READOUT 1e4f
#define WEIGHT_BASE (MAX_VOTE_WEIGHT / 8)
#define WEIGHT_GAIN (MAX_VOTE_WEIGHT - WEIGHT_BASE)
#define ROUGH_REACH 4.0f
#define NEAR_PART 0.85f
#define QUIET_PART 0.83f
#define EARLY 10
#define LEAST_BLOCKS 2
#define RATE_NATS 0.77f
#define RATE_SLOPE 0.52f
#define RATE_BEND -3.5f
#define RATE_RARE 0.04f
#define SUSPECT_PART 0.75f
#define MOST_RATE 0.32f
#define WORTH_START 0.4f
#define WORTH_RATE 0.005f
#define WORTH_GAIN 10.0f

struct Agent {
  float h[PREDICTOR_HIDDEN];
  float w[PREDICTOR_READOUT];
  float mean, err, drift, drift_usual, naive, unrest;
  float rough, rough_usual, away, away_usual;

  __device__ __forceinline__ void load(const State &s, unsigned a) {
    for (int j = 0; j < PREDICTOR_HIDDEN; j++) h[j] = *s.agent(PREDICTOR_VAR_HIDDEN, j, a);
    for (int j = 0; j < PREDICTOR_READOUT; j++) w[j] = *s.agent(PREDICTOR_VAR_READOUT, j, a);
    mean = *s.agent(PREDICTOR_VAR_MEAN, 0, a);
    err = *s.agent(PREDICTOR_VAR_ERROR, 0, a);
    drift = *s.agent(PREDICTOR_VAR_DRIFT, 0, a);
    drift_usual = *s.agent(PREDICTOR_VAR_DRIFT_USUAL, 0, a);
    naive = *s.agent(PREDICTOR_VAR_NAIVE, 0, a);
    unrest = *s.agent(PREDICTOR_VAR_UNREST, 0, a);
    rough = *s.agent(PREDICTOR_VAR_ROUGH, 0, a);
    rough_usual = *s.agent(PREDICTOR_VAR_ROUGH_USUAL, 0, a);
    away = *s.agent(PREDICTOR_VAR_AWAY, 0, a);
    away_usual = *s.agent(PREDICTOR_VAR_AWAY_USUAL, 0, a);
  }
  __device__ __forceinline__ void store(const State &s, unsigned a) const {
    for (int j = 0; j < PREDICTOR_HIDDEN; j++) *s.agent(PREDICTOR_VAR_HIDDEN, j, a) = h[j];
    for (int j = 0; j < PREDICTOR_READOUT; j++) *s.agent(PREDICTOR_VAR_READOUT, j, a) = w[j];
    *s.agent(PREDICTOR_VAR_MEAN, 0, a) = mean;
    *s.agent(PREDICTOR_VAR_ERROR, 0, a) = err;
    *s.agent(PREDICTOR_VAR_DRIFT, 0, a) = drift;
    *s.agent(PREDICTOR_VAR_DRIFT_USUAL, 0, a) = drift_usual;
    *s.agent(PREDICTOR_VAR_NAIVE, 0, a) = naive;
    *s.agent(PREDICTOR_VAR_UNREST, 0, a) = unrest;
    *s.agent(PREDICTOR_VAR_ROUGH, 0, a) = rough;
    *s.agent(PREDICTOR_VAR_ROUGH_USUAL, 0, a) = rough_usual;
    *s.agent(PREDICTOR_VAR_AWAY, 0, a) = away;
    *s.agent(PREDICTOR_VAR_AWAY_USUAL, 0, a) = away_usual;
  }
};

// The group while its run is stepped, in shared memory.
struct Group {
  float level[MAX_FEATURES], spread[MAX_FEATURES], last[MAX_FEATURES], now[MAX_FEATURES];
  float day[MAX_FEATURES], week[MAX_FEATURES]; // habits of the current observation
  float known; // 1 if the time of day has a habit, else 0
  float hold; // negative while an incident lasts
  float alarm, suspect; // nats
  Pace pace;
  unsigned shift[PREDICTOR_KINDS]; // of the surprises, what is usual at this half hour
  Prior prior;
  unsigned bins[PREDICTOR_KINDS]; // the group's surprise
  unsigned block[PREDICTOR_KINDS]; // the largest of the present block
  Tally tally;
  ByBin by_bin[PREDICTOR_KINDS];
  History history[PREDICTOR_KINDS];
};

// What is the same for all agents and observations of a launch.
struct Setting {
  const unsigned *params;
  const float *weights;
  TailShape shape;
  unsigned views, rule; // features and residuals
  float learn, history_rate, front_rate;
};

// What agents see of a habit: the part that its worth allows.
__device__ __forceinline__ float shown(float worth, float habit) {
  return mul(max32(0.0f, min32(1.0f, mul(WORTH_GAIN, worth))), habit);
}

// Moves a variable of a habit by rate towards the mean of a visit, and clears the mean.
__device__ __forceinline__ void end_visit(float *habit, float *mean, float rate) {
  *habit = add(*habit, mul(rate, sub(*mean, *habit)));
  *mean = 0.0f;
}

// Ends the visits that are over in the half hour. All threads call it.
__device__ __forceinline__ void end_visits(const State &state, unsigned V, unsigned half, float rate) {
  const unsigned before = *state.group32(PREDICTOR_VAR_VISIT, 0);
  unsigned *day = state.group32(PREDICTOR_VAR_VISITED, 0), *week = state.group32(PREDICTOR_VAR_VISITED, 1);
  const bool day_over = *day > 0 && half != before, week_over = *week > 0 && half / 2 != before / 2;
  const unsigned day_slot = before % DAY_SLOTS, week_slot = before / 2 % WEEK_SLOTS;
  unsigned *day_seen = state.group32(PREDICTOR_VAR_DAY_SEEN, day_slot);
  unsigned *week_seen = state.group32(PREDICTOR_VAR_WEEK_SEEN, week_slot);
  const float day_rate = max32(quo(1.0f, max32(1.0f, (float)*day_seen)), rate);
  const float week_rate = max32(quo(1.0f, add((float)*week_seen, 1.0f)), mul(2.0f, rate));
  for (unsigned f = threadIdx.x; f < V; f += blockDim.x) {
    if (day_over)
      end_visit(state.group(PREDICTOR_VAR_DAY, f * DAY_SLOTS + day_slot), state.group(PREDICTOR_VAR_DAY_VISIT, f),
                day_rate);
    if (week_over)
      end_visit(state.group(PREDICTOR_VAR_WEEK, f * WEEK_SLOTS + week_slot), state.group(PREDICTOR_VAR_WEEK_VISIT, f),
                week_rate);
  }
  if (day_over)
    for (unsigned k = threadIdx.x; k < PREDICTOR_KINDS; k += blockDim.x) end_peak(state, k, day_slot);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (day_over) {
      if (*day_seen < 1u << 20) ++*day_seen;
      *day = 0;
    }
    if (week_over) {
      if (*week_seen < 1u << 20) ++*week_seen;
      *week = 0;
    }
    *state.group32(PREDICTOR_VAR_VISIT, 0) = half;
  }
  __syncthreads();
}

// Adds view f of the observation, in spreads, to the present visits and to the worth of the habits.
__device__ __forceinline__ void learn_habits(const State &state, unsigned f, unsigned day_slot, unsigned week_slot,
                                             bool day_known, bool week_known, float u) {
  const float days = (float)(*state.group32(PREDICTOR_VAR_VISITED, 0) + 1);
  const float weeks = (float)(*state.group32(PREDICTOR_VAR_VISITED, 1) + 1);
  float *visit = state.group(PREDICTOR_VAR_DAY_VISIT, f);
  u = clamp32(u, HABIT_CLIP);
  *visit = add(*visit, quo(sub(u, *visit), days));
  if (!day_known) return;
  const float beyond = sub(u, *state.group(PREDICTOR_VAR_DAY, f * DAY_SLOTS + day_slot));
  visit = state.group(PREDICTOR_VAR_WEEK_VISIT, f);
  *visit = add(*visit, quo(sub(beyond, *visit), weeks));
  float *worth = state.group(PREDICTOR_VAR_DAY_WORTH, f);
  *worth = add(*worth, mul(WORTH_RATE, sub(sub(abs32(u), abs32(beyond)), *worth)));
  if (!week_known) return;
  const float rest = sub(beyond, *state.group(PREDICTOR_VAR_WEEK, f * WEEK_SLOTS + week_slot));
  worth = state.group(PREDICTOR_VAR_WEEK_WORTH, f);
  *worth = add(*worth, mul(WORTH_RATE, sub(sub(abs32(beyond), abs32(rest)), *worth)));
}

// Where the time of the first observation is, if it is kept: behind the relations, if there are any.
__device__ __forceinline__ unsigned since_var(const unsigned *params) {
  return params[PREDICTOR_RELATIONS] != 0 ? PREDICTOR_VAR_SINCE : PREDICTOR_VAR_RELATION;
}

// Where VAR_LATEST is: behind the time of the first observation, if that is kept.
__device__ __forceinline__ unsigned latest_var(const unsigned *params) {
  return since_var(params) + (params[PREDICTOR_PER_SECOND] != 0);
}

// Sets the alarm from the false alarms of a second, if they are limited. One thread.
__device__ __forceinline__ void set_levels(Group &g, const State &state, const unsigned *params, long long t,
                                           unsigned long long seen) {
  if (params[PREDICTOR_PER_SECOND] == 0) return;
  long long *since = (long long *)state.group64(since_var(params));
  if (seen == 0) *since = t;
  float step = quo(mul(__ll2float_rn(t - *since), 1e-9f), __ull2float_rn(seen > 1 ? seen : 1));
  float rate = max32(1e-30f, min32(MOST_RATE, mul(param(params, PREDICTOR_PER_SECOND), step)));
  const float l = log32(rate), rare = max32(0.0f, sub(RATE_BEND, l));
  g.alarm = add(sub(RATE_NATS, mul(RATE_SLOPE, l)), mul(RATE_RARE, mul(rare, rare)));
  g.suspect = mul(SUSPECT_PART, g.alarm);
}

// The sum of the evidence of a surprise of every kind. The harmonic mean of the probabilities is the number of kinds
// over it.
__device__ __forceinline__ float evidence_for(const Group &g, const TailShape &shape, const unsigned *bins) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < PREDICTOR_KINDS; k++) sum = add(sum, evidence_against(&g.history[k], shape, bins[k]));
  return sum;
}

// Moves agent a by one observation and returns its surprise of each kind and its weight.
__device__ __forceinline__ void step(Agent &s, unsigned a, unsigned A, const Group &g, const Setting &set,
                                     float inverse, bool first, unsigned *bins, unsigned *weight) {
  const float *c = set.weights + a;
  float value = g.now[0], last = g.last[0], day = g.day[0], week = g.week[0];
  if (set.views > 1) {
    const float *direction = c + PREDICTOR_PROJECT * A;
    value = project(direction, A, g.now, set.views);
    last = project(direction, A, g.last, set.views);
    day = project(direction, A, g.day, set.views);
    week = project(direction, A, g.week, set.views);
  }

  float h[PREDICTOR_HIDDEN];
#pragma unroll
  for (int j = 0; j < PREDICTOR_HIDDEN; j++) {
    const float *in = c + (PREDICTOR_IN + j * PREDICTOR_INPUTS) * A;
    float v = add(in[0], mul(in[A], last));
    const float *rec = c + (PREDICTOR_RECURRENT + j * PREDICTOR_HIDDEN) * A;
#pragma unroll
    for (int k = 0; k < PREDICTOR_HIDDEN; k++) v = add(v, mul(rec[k * A], s.h[k]));
    h[j] = add(s.h[j], mul(c[(PREDICTOR_LEAK + j) * A], sub(tanh32(v), s.h[j])));
  }
#pragma unroll
  for (int j = 0; j < PREDICTOR_HIDDEN; j++) s.h[j] = h[j];

  if (first) s.mean = value;
  float in[PREDICTOR_READOUT] = {h[0], h[1], h[2], h[3], clamp32(sub(last, s.mean), REACH),
      mul(g.known, clamp32(sub(day, s.mean), REACH)), clamp32(week, REACH)};
  float predicted = 0.0f, norm = RIDGE, square = 0.0f;
#pragma unroll
  for (int j = 0; j < PREDICTOR_READOUT; j++) {
    predicted = add(predicted, mul(s.w[j], in[j]));
    norm = add(norm, mul(in[j], in[j]));
    square = add(square, mul(s.w[j], s.w[j]));
  }
  float off = sub(value, s.mean);
  float e = sub(off, predicted);
  float size = abs32(e);
  float usual = add(s.err, ERROR_FLOOR);

  float fast = max32(inverse, c[PREDICTOR_FAST * A]);
  const float held = clamp32(e, mul(GRADIENT_CLIP, usual));
  s.drift = add(s.drift, mul(fast, sub(held, s.drift)));
  float drift = abs32(s.drift);
  float limit = mul(USUAL_CLIP, usual);
  s.unrest = add(s.unrest, mul(max32(inverse, c[PREDICTOR_UNREST * A]), sub(min32(size, limit), s.unrest)));
  bins[PREDICTOR_INSTANT] = surprise_bin(quo(size, usual));
  bins[PREDICTOR_LASTING] = surprise_bin(quo(drift, add(s.drift_usual, DRIFT_FLOOR)));
  bins[PREDICTOR_RESTLESS] = surprise_bin(quo(add(s.unrest, ERROR_FLOOR), usual));

  float step = log2_rough(add(abs32(sub(value, last)), ERROR_FLOOR));
  float slow = max32(inverse, set.front_rate);
  const float near = add(s.rough_usual, clamp32(sub(step, s.rough_usual), ROUGH_REACH));
  s.rough = add(s.rough, mul(max32(inverse, c[PREDICTOR_ROUGH_RATE * A]), sub(near, s.rough)));
  s.rough_usual = add(s.rough_usual, mul(slow, sub(step, s.rough_usual)));
  s.away = add(s.away, mul(max32(inverse, c[PREDICTOR_AWAY_RATE * A]), sub(value, s.away)));
  float away = abs32(s.away), away_usual = add(s.away_usual, 2.0f * ERROR_FLOOR);
  bins[PREDICTOR_ROUGH] = octave_bin(sub(s.rough, s.rough_usual));
  bins[PREDICTOR_CALM] = octave_bin(sub(s.rough_usual, s.rough));
  bins[PREDICTOR_AWAY] = surprise_bin(quo(add(away, 2.0f * ERROR_FLOOR), away_usual));
  s.away_usual = add(s.away_usual, mul(slow, sub(min32(away, mul(USUAL_CLIP, away_usual)), s.away_usual)));
  float skill = sub(1.0f, quo(usual, add(s.naive, 2.0f * ERROR_FLOOR)));
  skill = max32(0.0f, min32(1.0f, skill));
  *weight = WEIGHT_BASE + (unsigned)mul((float)WEIGHT_GAIN, skill);

  float gain = quo(mul(set.learn, held), norm);
#pragma unroll
  for (int j = 0; j < PREDICTOR_READOUT; j++) {
    s.w[j] = square > LARGEST_READOUT ? 0.0f : add(s.w[j], mul(gain, in[j]));
  }
  float rate = max32(inverse, set.history_rate);
  float drift_limit = mul(USUAL_CLIP, add(s.drift_usual, DRIFT_FLOOR));
  s.drift_usual = add(s.drift_usual, mul(rate, sub(min32(drift, drift_limit), s.drift_usual)));
  s.err = add(s.err, mul(rate, sub(min32(size, limit), s.err)));
  s.naive = add(s.naive, mul(rate, sub(min32(abs32(off), limit), s.naive)));
  s.mean = add(s.mean, mul(max32(inverse, c[PREDICTOR_SLOW * A]), clamp32(off, limit)));
}

extern "C" __global__ void __launch_bounds__(1024)
predictor_observe(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
                  const float *weights, const Run *runs, const long long *times, const double *features, float *scores,
                  unsigned *decisions, unsigned *counts, unsigned *leaders, unsigned long long *rounds,
                  unsigned char *host) {
  __shared__ Group g;
  const Run run = runs[blockIdx.x];
  if (run.count == 0) return;
  const State state = open_state(pages, host, page_bytes, layout, run);
  const unsigned A = state.agents, thread = threadIdx.x, threads = blockDim.x;
  const bool resident = A <= threads;

  Setting set;
  set.params = params;
  set.weights = weights;
  set.shape.share = param(params, PREDICTOR_TAIL_SHARE);
  set.shape.expected = param(params, PREDICTOR_TAIL_SHAPE);
  set.shape.trust = param(params, PREDICTOR_TAIL_TRUST);
  set.shape.rank_mix = param(params, PREDICTOR_RANK_MIX);
  set.views = params[PREDICTOR_FEATURES] + params[PREDICTOR_RELATIONS];
  set.rule = params[PREDICTOR_RULE];
  set.learn = param(params, PREDICTOR_LEARN);
  set.history_rate = param(params, PREDICTOR_HISTORY_RATE);
  set.front_rate = param(params, PREDICTOR_FRONT_RATE);
  const unsigned I = params[PREDICTOR_FEATURES], V = set.views;

  for (unsigned f = thread; f < V; f += threads) {
    g.level[f] = *state.group(PREDICTOR_VAR_LEVEL, f);
    g.spread[f] = *state.group(PREDICTOR_VAR_SPREAD, f);
    g.last[f] = *state.group(PREDICTOR_VAR_LAST, f);
  }
  for (unsigned b = thread; b < PREDICTOR_KINDS * HISTORY_BINS; b += threads)
    g.history[b / HISTORY_BINS].at_least[b % HISTORY_BINS] = *state.group32(PREDICTOR_VAR_HISTORY, b);
  for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads) g.block[k] = *state.group32(PREDICTOR_VAR_BLOCK, k);
  if (thread == 0) {
    g.hold = *state.group(PREDICTOR_VAR_HOLD, 0);
    g.pace.load(state);
    g.alarm = param(params, PREDICTOR_ALARM);
    g.suspect = param(params, PREDICTOR_SUSPECT);
  }
  unsigned long long *round = state.group64(PREDICTOR_VAR_ROUND);
  unsigned long long seen = *round; // every thread counts for itself; thread 0 advances the word
  bool fitted = false; // the tails are of the present histories
  Agent own;
  if (resident && thread < A) own.load(state, thread);
  __syncthreads();

  for (unsigned n = run.first; n < run.first + run.count; n++) {
    const unsigned dropped = dropped_as(state, latest_var(params), params[PREDICTOR_DROP], &times[n], seen);
    if (dropped) {
      if (thread == 0) answer_dropped(n, dropped, seen, scores, decisions, counts, leaders, rounds);
      continue;
    }
    const float inverse = quo(1.0f, __ull2float_rn(seen + 1));
    const bool warm = seen >= params[PREDICTOR_WARMUP];
    unsigned before[PREDICTOR_KINDS];
#pragma unroll
    for (int k = 0; k < PREDICTOR_KINDS; k++) before[k] = g.history[k].at_least[0];

    // The observation as all agents see it. The last threads fit the histories meanwhile.
    const long long t = times[n];
    const unsigned half = half_of(t);
    const unsigned day_slot = half % DAY_SLOTS, week_slot = half / 2 % WEEK_SLOTS;
    if (seen == 0) {
      for (unsigned f = thread; f < V; f += threads)
        *state.group(PREDICTOR_VAR_DAY_WORTH, f) = *state.group(PREDICTOR_VAR_WEEK_WORTH, f) = WORTH_START;
    }
    end_visits(state, V, half, param(params, PREDICTOR_HABIT_RATE));
    for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads) g.shift[k] = usual_bins(state, k, day_slot);
    const bool day_known = *state.group32(PREDICTOR_VAR_DAY_SEEN, day_slot) > 0;
    const bool week_known = *state.group32(PREDICTOR_VAR_WEEK_SEEN, week_slot) > 0;
    const float front_rate = max32(inverse, set.front_rate), clip = param(params, PREDICTOR_CLIP);
    const double *x = features + (unsigned long long)n * I;
    for (unsigned f = thread; f < I; f += threads) {
      const float v = above(x[f], (long long *)state.group64(PREDICTOR_VAR_OFFSET, f), &g.level[f], g.spread[f], seen);
      g.now[f] = see(v, &g.level[f], &g.spread[f], seen, front_rate, clip);
    }
    if (V > I) {
      __syncthreads();
      for (unsigned f = thread; f < V - I; f += threads) {
        const float r = residual(state, f, I, g.now, g.last, inverse, max32(inverse, set.history_rate));
        g.now[I + f] = see(r, &g.level[I + f], &g.spread[I + f], seen, front_rate, clip);
      }
    }
    for (unsigned f = thread; f < V; f += threads) {
      g.day[f] = shown(*state.group(PREDICTOR_VAR_DAY_WORTH, f),
          *state.group(PREDICTOR_VAR_DAY, f * DAY_SLOTS + day_slot));
      g.week[f] = shown(*state.group(PREDICTOR_VAR_WEEK_WORTH, f),
          *state.group(PREDICTOR_VAR_WEEK, f * WEEK_SLOTS + week_slot));
    }
    if (thread == 0) {
      g.known = day_known ? 1.0f : 0.0f;
      g.prior = prior_of(seen, params[PREDICTOR_BLOCK], resident ? own.rough_usual :
                         *state.agent(PREDICTOR_VAR_ROUGH_USUAL, 0, 0));
      set_levels(g, state, params, t, seen);
      g.pace.see(t, inverse, params[PREDICTOR_BLOCK], (float)before[0]);
      clear_tally(&g.tally);
    }
    if (warm && !fitted)
      for (unsigned k = threads - 1 - thread; k < PREDICTOR_KINDS; k += threads) fit(&g.history[k], set.shape);
    fitted = fitted || warm;
    for (unsigned k = 0; k < PREDICTOR_KINDS; k++) clear_bins(&g.by_bin[k]);
    __syncthreads();

    // The agents: step, and vote.
    const float level = abs32(g.hold);
    const float most = most_evidence(g.pace.known);
    const float loudest = evidence_of(max32(g.alarm, level)), oddest = evidence_of(g.suspect);
    float loud = mul((float)PREDICTOR_KINDS, grown(loudest, most));
    float odd = mul((float)PREDICTOR_KINDS, grown(oddest, most));
    Ballots ballots;
    ballots.clear();
    for (unsigned a = thread; a < A; a += threads) {
      unsigned bins[PREDICTOR_KINDS], weight;
      if (!resident) own.load(state, a);
      step(own, a, A, g, set, inverse, seen == 0, bins, &weight);
      if (!resident) own.store(state, a);
#pragma unroll
      for (int k = 0; k < PREDICTOR_KINDS; k++) bins[k] -= min(bins[k], g.shift[k]);
      unsigned candidate = VOTE_NORMAL;
      if (warm) {
        const float evidence = evidence_for(g, set.shape, bins);
        if (g.prior.weight > 0.0f) {
          const float bound = add(most, prior_evidence(g.prior, bins[PREDICTOR_INSTANT]));
          loud = mul((float)PREDICTOR_KINDS, grown(loudest, bound));
          odd = mul((float)PREDICTOR_KINDS, grown(oddest, bound));
        }
        if (evidence >= loud) candidate = VOTE_ANOMALOUS;
        else if (evidence >= odd) candidate = VOTE_SUSPICIOUS;
      }
      for (unsigned k = 0; k < PREDICTOR_KINDS; k++) atomicAdd(&g.by_bin[k].bins[bins[k]], weight);
      ballots.vote(a, candidate, set.rule == RULE_WEIGHTED ? weight : 1, weight, weight);
    }
    cast(&g.tally, ballots);
    __syncthreads();

    // The group: its surprise, score and decision.
    for (unsigned k = 0; k < PREDICTOR_KINDS; k++) sum_segments(&g.by_bin[k]);
    __syncthreads();
    for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads)
      g.bins[k] = group_surprise(&g.by_bin[k], g.tally.total, params[PREDICTOR_SHARE]);
    __syncthreads();
    if (thread == 0) {
      float score = 0.0f, held = level;
      bool inside = g.hold < 0.0f, opens = false;
      if (warm) {
        const float evidence = quo(evidence_for(g, set.shape, g.bins), (float)PREDICTOR_KINDS);
        float bound = most;
        if (g.prior.weight > 0.0f) bound = add(bound, prior_evidence(g.prior, g.bins[PREDICTOR_INSTANT]));
        float nats = max32(0.0f, log32(young(evidence, bound)));
        score = quo(nats, add(nats, (float)SCORE_HALF));
        if (inside || nats <= level || nats < mul(NEAR_PART, g.alarm))
          score = mul(mul(QUIET_PART, quo(g.alarm, add(g.alarm, (float)SCORE_HALF))), score);
        opens = !inside && nats >= g.alarm && nats > level;
        held = max32(mul(level, param(params, PREDICTOR_HOLD)), mul(nats, param(params, PREDICTOR_MARGIN)));
      }
      if (!opens) {
        g.tally.counts[VOTE_SUSPICIOUS] += g.tally.counts[VOTE_ANOMALOUS];
        g.tally.counts[VOTE_ANOMALOUS] = 0;
      }
      const unsigned decision = decide(&g.tally, set.rule, params[PREDICTOR_QUORUM]);
      inside = decision == VOTE_ANOMALOUS || (inside && decision != VOTE_NORMAL);
      g.hold = inside ? -held : held;
      scores[n] = score;
      decisions[n] = decision;
      for (unsigned c = 0; c < VOTE_CANDIDATES; c++)
        counts[(unsigned long long)n * VOTE_CANDIDATES + c] = g.tally.counts[c];
      leaders[n] = leader_of(&g.tally);
      rounds[n] = elect_round(round, seen);
      keep_latest(state, latest_var(params), params[PREDICTOR_DROP], t, seen);
    }
    for (unsigned f = thread; f < V; f += threads) {
      learn_habits(state, f, day_slot, week_slot, day_known, week_known, g.now[f]);
      g.last[f] = g.now[f];
    }
    __syncthreads();
    if (thread == 0) {
      ++*state.group32(PREDICTOR_VAR_VISITED, 0);
      if (day_known) ++*state.group32(PREDICTOR_VAR_VISITED, 1);
    }
    if (seen >= EARLY) {
      const bool full = seen >= EAGER && (seen + 1) % params[PREDICTOR_BLOCK] == 0;
      if (seen == EAGER) {
        for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads) g.block[k] = 0; // of inflated ratios
        __syncthreads();
      }
      if (full) {
        for (unsigned k = 0; k < PREDICTOR_KINDS; k++)
          add_surprise(&g.history[k], max(g.block[k], g.bins[k]), before[k], params[PREDICTOR_MEMORY]);
        fitted = false;
        __syncthreads();
      }
      for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads) {
        g.block[k] = full ? 0 : max(g.block[k], g.bins[k]);
        if (seen >= EAGER) learn_peak(state, k, g.bins[k], g.shift[k]);
      }
    }
    __syncthreads();
    seen++;
  }

  for (unsigned f = thread; f < V; f += threads) {
    *state.group(PREDICTOR_VAR_LEVEL, f) = g.level[f];
    *state.group(PREDICTOR_VAR_SPREAD, f) = g.spread[f];
    *state.group(PREDICTOR_VAR_LAST, f) = g.last[f];
  }
  for (unsigned b = thread; b < PREDICTOR_KINDS * HISTORY_BINS; b += threads)
    *state.group32(PREDICTOR_VAR_HISTORY, b) = g.history[b / HISTORY_BINS].at_least[b % HISTORY_BINS];
  for (unsigned k = thread; k < PREDICTOR_KINDS; k += threads) *state.group32(PREDICTOR_VAR_BLOCK, k) = g.block[k];
  if (thread == 0) {
    *state.group(PREDICTOR_VAR_HOLD, 0) = g.hold;
    g.pace.store(state);
  }
  if (resident && thread < A) own.store(state, thread);
}
