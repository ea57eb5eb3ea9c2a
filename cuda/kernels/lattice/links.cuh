// The frame of a custom cell on a graph. A thread makes an agent. It reads whom the agent hears in the order of its
// row, and joins one after the other.
#pragma once

// Whom agents hear: agent id hears the agents in columns from offsets[id] to offsets[id + 1] or, if degree is not 0,
// degree agents from id * degree on. Weights are in 2^-16, and all are 1 unless weighted.
struct Links {
  const unsigned long long *offsets;
  const unsigned *columns;
  const int *weights;
  unsigned degree, weighted, agents;
};

template <class Cell>
__device__ __forceinline__ void step_links(const Generation &old, const Generation &made, const unsigned *layout,
                                           const unsigned *words, const Grid &grid, const Links &links,
                                           unsigned long long tick, unsigned count, unsigned long long *tally) {
  __shared__ unsigned sums[LATTICE_CANDIDATES];
  if (threadIdx.x < LATTICE_CANDIDATES) sums[threadIdx.x] = 0;
  __syncthreads();
  unsigned offsets[LATTICE_VARS];
  for (unsigned i = 0; i < LATTICE_VARS; i++) offsets[i] = layout[2 + i];
  const unsigned group = layout[0]; // agents of one
  const typename Cell::Params params = Cell::params(words);
  const unsigned stride = gridDim.x * blockDim.x;
  Counts counts = {0, 0};
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < links.agents; i += stride) {
    const unsigned id = (unsigned)i;
    const Row own = row_of(old, grid, id);
    unsigned long long at = i * links.degree, end = at + links.degree;
    if (links.degree == 0) at = __ldg(links.offsets + i), end = __ldg(links.offsets + i + 1);
    typename Cell::Around around;
    around.neighbours = (unsigned)(end - at);
    around.tick = tick;
    typename Cell::Part all = Cell::Part::none();
    for (; at < end; at++) {
      const float weight = links.weighted ? mul((float)__ldg(links.weights + at), 1.52587890625e-5f) : 1.0f;
      all.join(Cell::Part::of(Cell::hear(row_of(old, grid, __ldg(links.columns + at)), offsets, 0), weight));
    }
    Cell::around(around, all, around.neighbours);
    typename Cell::Agent agent;
    agent.open(words[0], words[1], id, tick);
    Cell::load(agent, Cell::hear(own, offsets, 0), own, offsets, 0);
    Cell::step(agent, params, around);
    const Row to = row_of(made, grid, id);
    Cell::store(agent, to, offsets, 0);
    if (to.at % group == 0)
      ((unsigned long long *)(to.page + offsets[LATTICE_VARS - 1]))[to.at / group] = tick + 1;
    if (count) {
      counts.add(Cell::candidate(agent));
      counts.flush(sums);
    }
  }
  __syncthreads();
  if (count && threadIdx.x < LATTICE_CANDIDATES && sums[threadIdx.x])
    atomicAdd(&tally[threadIdx.x], (unsigned long long)sums[threadIdx.x]);
}
