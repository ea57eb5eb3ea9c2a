// The leaky integrator of agent-addressed swarms; cuda/host/celltwin/agents.go does the same operation by operation.
#pragma once

#define SWARM_VARS (AGENT_VAR_TRACE + 1)
#include "agents.cuh"

struct Leaky {
  float decay, threshold, rate;

  __device__ __forceinline__ explicit Leaky(const unsigned *params)
      : decay(__uint_as_float(params[AGENT_DECAY])), threshold(__uint_as_float(params[AGENT_THRESHOLD])),
          rate(__uint_as_float(params[AGENT_TRACE_RATE])) {}

  // Moves potential and trace by the current and the gain that drive the agent, and says whether it spikes.
  __device__ __forceinline__ bool step(float *potential, float *trace, float current, float gain) const {
    const float v = fma32(decay, *potential, fma32(current, gain, current));
    const bool spikes = v > threshold;
    *potential = spikes ? __fsub_rn(v, threshold) : v;
    *trace = fma32(rate, __fsub_rn(spikes ? 1.0f : 0.0f, *trace), *trace);
    return spikes;
  }
};
