// The update of a unit of a knowledge node; see kernels.ToldParams.
#pragma once

#include "agents.cuh"

// The unit of a node after an update. Of the merge max the sum is the largest unit, and of is 1; else of is the number
// of agents, or the sum of their weights. merged says that the node was updated before, and old is the unit then.
__device__ __forceinline__ float merged_unit(long long sum, double of, unsigned merge, float rate, bool merged,
    float old) {
  const float v = (float)((double)sum / (of * (double)AGENT_UNIT_SCALE));
  return merge == AGENT_MERGE_EMA && merged ? fma32(rate, v - old, old) : v;
}
