// tally_merge merges the partial tallies of many shards, which lie in one buffer, decides and closes the round in one
// launch; see kernels.TallyMergeArgs, and consensus.Poll for what it means. A shard that is late has another round in
// its record and is left out; one that repeats itself has still one record.
#include "tally_wide.cuh"

// Whether a record is a partial of the round: of a launch that has closed it for its shard.
__device__ __forceinline__ bool is_partial(const u64 *record, u64 round) {
  return record[RESULT_ROUND] == round && record[RESULT_DONE] >> 32 & RESULT_ELECTED;
}

// The larger of a word in shared memory and the threads' values, by all threads; all get it. 0 is the least.
__device__ __forceinline__ u64 block_max(u64 *shared, u64 v) {
  if (threadIdx.x == 0) *shared = 0;
  __syncthreads();
  const Warp warp = this_warp();
  v = warp_max(warp, v);
  if (warp.lane == 0) atomicMax(shared, v);
  __syncthreads();
  return *shared;
}

extern "C" __global__ void __launch_bounds__(1024)
tally_merge(const unsigned long long *records, unsigned stride, unsigned shards, unsigned candidates, unsigned need,
            unsigned rule, unsigned of_all, unsigned num, unsigned den, unsigned long long seen,
            unsigned long long round, unsigned sequence, unsigned long long *scratch, unsigned long long *word,
            unsigned long long *result) {
  __shared__ u64 highest, smallest;
  const Ask ask = {candidates, 0, rule, of_all, num, den, sequence, 0, seen, round};
  // A thread sums a column over the records of its block: the candidates, total, abstentions, invalid and bad weights.
  for (unsigned c = threadIdx.x; c < candidates + 4; c += blockDim.x) {
    unsigned from = RESULT_COUNTS + c, to = TALLY_SLOTS + c;
    if (c == candidates) from = RESULT_TOTAL, to = TALLY_WEIGHT;
    if (c == candidates + 1) from = RESULT_ABSTAIN, to = TALLY_ABSTAIN;
    if (c == candidates + 2) from = RESULT_INVALID, to = TALLY_INVALID;
    if (c == candidates + 3) from = RESULT_BAD, to = TALLY_BAD;
    u64 sum = 0, heard = 0;
    bool carry = false;
    for (u64 s = blockIdx.x; s < shards; s += gridDim.x) {
      const u64 *record = records + s * stride;
      if (!is_partial(record, round)) continue;
      heard++;
      sum += record[from];
      carry = carry || sum < record[from];
    }
    if (sum) {
      const u64 old = atomicAdd(&scratch[to], sum);
      carry = carry || old + sum < old; // in any order of the blocks there is one that wraps, or none
    }
    if (carry) atomicMax(&scratch[TALLY_CARRY], 1ull);
    if (c == 0 && heard) atomicAdd(&scratch[TALLY_HEARD], heard);
  }
  if (!last_block(scratch)) return;

  const u64 total = __ldcg(&scratch[TALLY_WEIGHT]), abstain = __ldcg(&scratch[TALLY_ABSTAIN]),
      invalid = __ldcg(&scratch[TALLY_INVALID]);
  const u64 bad = __ldcg(&scratch[TALLY_BAD]), heard = __ldcg(&scratch[TALLY_HEARD]),
      carry = __ldcg(&scratch[TALLY_CARRY]);
  const Strongest s = take_counts(ask, scratch, result + RESULT_COUNTS);
  const bool torn = s.cast + abstain + invalid != total;
  if (carry || torn) // what does not fit is void
    for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x) result[RESULT_COUNTS + c] = 0;
  u64 best = 0; // priority + 1
  for (unsigned k = threadIdx.x; k < shards; k += blockDim.x) {
    const u64 *record = records + (u64)k * stride;
    if (!is_partial(record, round) || !(record[RESULT_DONE] >> 32 & RESULT_HAS_LEADER)) continue;
    const u64 key = (u64)(unsigned)record[RESULT_PRIORITY] + 1;
    if (key > best) best = key;
  }
  best = block_max(&highest, best);
  u64 agent = 0; // ~id, so that the smaller one is the larger word
  for (unsigned k = threadIdx.x; k < shards; k += blockDim.x) {
    const u64 *record = records + (u64)k * stride;
    if (!is_partial(record, round) || !(record[RESULT_DONE] >> 32 & RESULT_HAS_LEADER)) continue;
    if ((u64)(unsigned)record[RESULT_PRIORITY] + 1 != best) continue;
    const u64 key = ~(record[RESULT_COUNTS + candidates] + (record[RESULT_WINNER] >> 32));
    if (key > agent) agent = key;
  }
  agent = ~block_max(&smallest, agent);
  if (threadIdx.x != 0) return;
  scratch[TALLY_WEIGHT] = scratch[TALLY_ABSTAIN] = scratch[TALLY_INVALID] = 0;
  scratch[TALLY_BAD] = scratch[TALLY_HEARD] = scratch[TALLY_CARRY] = 0;
  u64 now = 0;
  u64 flags = carry ? RESULT_OVERFLOW : (torn ? RESULT_TORN : 0);
  const bool whole = !flags, leads = whole && best != 0;
  if (whole && heard >= need) flags |= elect(word, ask, &now) ? RESULT_ELECTED : 0;
  else now = atomicAdd(word, 0ull);
  const bool met = whole && rule_met_wide(ask, s.votes, s.cast, total);
  result[RESULT_WINNER] = met ? s.winner : NO_DECISION;
  result[RESULT_PRIORITY] = heard << 32 | (leads ? best - 1 : 0);
  result[RESULT_ROUND] = now;
  result[RESULT_TOTAL] = whole ? total : 0;
  result[RESULT_ABSTAIN] = whole ? abstain : 0;
  result[RESULT_INVALID] = whole ? invalid : 0;
  result[RESULT_BAD] = whole ? bad : 0;
  result[RESULT_COUNTS + candidates] = leads ? agent : 0;
  flags |= (met ? RESULT_MET : 0) | (leads ? RESULT_HAS_LEADER : 0);
  __threadfence_system(); // covers what the block stored before the barriers too
  *(volatile u64 *)&result[RESULT_DONE] = flags << 32 | sequence;
}
