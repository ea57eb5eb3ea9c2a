// step_decide decides the groups of the agents that a launch of gru_step_* or leaky_step has stepped, and publishes the
// swarm's tally; see kernels.DecideParams. Whoever stamps a group first advances its round.
#include "agents.cuh"

extern "C" __global__ void __launch_bounds__(256)
step_decide(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, unsigned groups, const unsigned *agents, const unsigned char *votes, unsigned count,
            unsigned *stamps, unsigned char *decisions, unsigned long long *scratch, unsigned number,
            unsigned long long *result, unsigned char *host, const unsigned *head) {
  __shared__ bool last;
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const unsigned n = counted(count, head), sequence = count == AGENT_HEADED ? head[1] : number;
  const unsigned rule = params[AGENT_RULE], quorum = params[AGENT_QUORUM];
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    unsigned char outcome = AGENT_NO_VOTE;
    if (votes[i] != AGENT_NO_VOTE) {
      const unsigned agent = agents[i];
      const unsigned stamp = atomicExch(&stamps[agent / s.agents], sequence); // on its way while the counts are
      const Place p = place(s, agent);
      outcome = (unsigned char)decision(s.counts(p.page, p.slot), s.candidates, rule, quorum);
      if (stamp != sequence) atomicAdd(s.round(p.page, p.slot), (u64)1); // without a wait for what it was
    }
    decisions[i] = outcome;
  }
  __threadfence(); // who sees the result may free what was written here
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)&scratch[AGENT_TICKET], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  for (unsigned c = 0; c < s.candidates; c++) result[AGENT_RESULT_TALLY + c] = scratch[AGENT_TALLY + c];
  for (unsigned i = AGENT_STEPPED; i <= AGENT_REFUSED; i++) {
    result[i] = scratch[i];
    scratch[i] = 0;
  }
  __threadfence_system();
  *(volatile u64 *)&result[AGENT_DONE] = sequence;
}
