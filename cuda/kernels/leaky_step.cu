// leaky_step steps the leaky integrators addressed, each at most once in a launch; see kernels.StepParams.
#include "leaky_agents.cuh"

extern "C" __global__ void __launch_bounds__(256)
leaky_step(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
           const unsigned *params, const float *weights, unsigned groups, const unsigned *agents, const float *inputs,
           unsigned count, unsigned char *votes, unsigned long long *scratch, unsigned char *host,
           const unsigned *head) {
  __shared__ Sparse block;
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const Leaky cell(params);
  const unsigned I = params[AGENT_FEATURES], n = counted(count, head);
  open_sparse(&block);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    const unsigned agent = agents[i];
    bool odd = false;
    const float current = held(inputs[i * I], AGENT_INPUT, &odd),
        gain = I > 1 ? held(inputs[i * I + 1], AGENT_INPUT, &odd) : 0.0f;
    if (agent / s.agents >= s.groups || odd) {
      atomicAdd(agent / s.agents >= s.groups ? &block.outside : &block.refused, 1u);
      votes[i] = AGENT_NO_VOTE;
      continue;
    }
    const Place p = place(s, agent);
    unsigned char *vote = s.variable(p.page, AGENT_VAR_VOTE) + p.at;
    const unsigned old = *vote;
    ((float2 *)s.variable(p.page, AGENT_VAR_INPUT))[p.at] = make_float2(current, gain);
    float *potential = (float *)s.variable(p.page, AGENT_VAR_POTENTIAL) + p.at,
        *trace = (float *)s.variable(p.page, AGENT_VAR_TRACE) + p.at;
    const unsigned best = cell.step(potential, trace, current, gain);
    votes[i] = (unsigned char)best;
    revote(s, &block, p, vote, old, best);
    atomicAdd(&block.stepped, 1u);
  }
  close_sparse(s, &block, scratch);
}
