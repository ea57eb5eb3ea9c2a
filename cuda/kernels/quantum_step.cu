// quantum_step_q1 and its like prepare the states of the agents addressed, each at most once in a launch: feature i
// turns qubit i by RY from |0>. See kernels.StepArgs.
#include "quantum_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME quantum_step
#endif

extern "C" __global__ void __launch_bounds__(QUANTUM_BLOCK, QUANTUM_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, const unsigned *table, unsigned groups, const unsigned *agents, const float *inputs,
            unsigned count, unsigned char *votes, unsigned long long *scratch, unsigned char *host,
            const unsigned *head) {
  __shared__ Sparse block;
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const unsigned I = params[AGENT_FEATURES], n = counted(count, head);
  open_sparse(&block);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    const unsigned agent = agents[i];
    bool odd = false;
    float angles[QUBITS];
#pragma unroll
    for (unsigned q = 0; q < QUBITS; q++) angles[q] = q < I ? held(inputs[i * I + q], QUANTUM_ANGLE, &odd) : 0.0f;
    if (agent / s.agents >= s.groups || odd) {
      atomicAdd(agent / s.agents >= s.groups ? &block.outside : &block.refused, 1u);
      votes[i] = AGENT_NO_VOTE;
      continue;
    }
    Qubits a;
    a.zero();
#pragma unroll
    for (unsigned q = 0; q < QUBITS; q++) {
      if (q >= I) continue;
      float sine, cosine;
      half_angle(angles[q], &sine, &cosine);
#pragma unroll
      for (unsigned r = 0; r < AMPLITUDES; r++) {
        if (r >> q) continue;
        a.re[(r | 1u << q) % AMPLITUDES] = a.re[r] * sine;
        a.re[r] *= cosine;
      }
    }
    const Place p = place(s, agent);
    a.store((float *)s.variable(p.page, QUANTUM_VAR_STATE) + p.at, s.slots * s.agents);
    unsigned *draws = (unsigned *)s.variable(p.page, QUANTUM_VAR_DRAWS) + p.at;
    unsigned char *vote = s.variable(p.page, AGENT_VAR_VOTE) + p.at;
    const unsigned old = *vote, number = *draws + 1;
    *draws = number;
    const unsigned ballot = a.draw(params, table, agent, number, 0, a.weight());
    votes[i] = (unsigned char)ballot;
    revote(s, &block, p, vote, old, ballot);
    atomicAdd(&block.stepped, 1u);
  }
  close_sparse(s, &block, scratch);
}
