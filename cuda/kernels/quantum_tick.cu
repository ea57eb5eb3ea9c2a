// quantum_tick_q1 and its like run the circuit of all agents of a swarm, a thread for each; see kernels.TickArgs.
// A launch of no steps draws ballots alone.
#include "quantum_agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME quantum_tick
#endif

struct DenseQuantum {
  enum { SPAN = QUANTUM_SPAN, TOLD_STEPS = 0 };
  const Swarm &s;
  const unsigned *table;

  __device__ __forceinline__ DenseQuantum(const Swarm &swarm, const unsigned *t) : s(swarm), table(t) {}
  __device__ __forceinline__ void open(const Span &) {}
  __device__ __forceinline__ void tell(const Span &, unsigned) const {}
  __device__ __forceinline__ bool adds() const { return false; }
  __device__ __forceinline__ void keep(const Span &, unsigned, unsigned, unsigned, bool) const {}

  template <bool MANY> __device__ __forceinline__ void step(const Span &span, const Span &, unsigned steps,
      unsigned *counts) {
    const unsigned agents = span.groups * s.agents, stride = s.slots * s.agents, at = span.slot * s.agents;
    float *state = (float *)s.variable(span.frame, QUANTUM_VAR_STATE) + at;
    unsigned *draws = (unsigned *)s.variable(span.frame, QUANTUM_VAR_DRAWS) + at;
    unsigned char *vote = s.variable(span.frame, AGENT_VAR_VOTE) + at;
    const bool fresh = __ldg(table + QUANTUM_TABLE_FRESH);
    for (unsigned i = threadIdx.x; i < agents; i += blockDim.x) {
      const bool begun = vote[i];
      unsigned low = s.params[QUANTUM_ROUND], high = s.params[QUANTUM_ROUND + 1] | QUANTUM_VOTE;
      unsigned all;
      Qubits a;
      if (MANY && steps == 0) {
        if (!begun) continue;
        a.load(state + i, stride);
        all = a.weight();
      } else {
        if (fresh || !begun) a.zero();
        else a.load(state + i, stride);
        for (unsigned left = MANY ? steps : 1; left > 0; left--) {
          if (MANY && fresh) a.zero();
          a.run(table);
          all = a.normalise();
        }
        a.store(state + i, stride);
        draws[i] = low = draws[i] + steps;
        high = 0;
      }
      const unsigned ballot = a.draw(s.params, table, span.first * s.agents + i, low, high, all);
      vote[i] = (unsigned char)(ballot + 1);
      atomicAdd(&counts[s.group(i) * s.candidates + ballot], 1u);
    }
  }
};

extern "C" __global__ void __launch_bounds__(QUANTUM_BLOCK, QUANTUM_BLOCKS)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, const unsigned *table, unsigned groups, unsigned first, unsigned count,
            unsigned steps, unsigned tally, unsigned char *decisions, unsigned long long *scratch, unsigned sequence,
            unsigned long long *result) {
  const Swarm swarm(pages, page_bytes, frames, layout, params, groups);
  DenseQuantum cell(swarm, table);
  tick(swarm, Part{first, count, steps, tally}, cell, decisions, scratch, sequence, result);
}
