// swarm_mark counts the observations of each page of a swarm, and those of agents that have an earlier one in the
// launch; see swarmset.go. The last block publishes the counts and clears them.
extern "C" __global__ void __launch_bounds__(256)
swarm_mark(const unsigned *ids, unsigned n, unsigned agents, unsigned per, unsigned pages, unsigned *seen,
           unsigned *counts, unsigned long long *scratch, unsigned sequence, unsigned *result) {
  __shared__ bool last;
  const unsigned step = gridDim.x * blockDim.x;
  unsigned repeated = 0;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const unsigned id = ids[i];
    if (id >= agents) continue;
    const unsigned bit = 1u << id % 32;
    if (atomicOr(&seen[id / 32], bit) & bit) repeated++;
    atomicAdd(&counts[id / per], 1u);
  }
  if (repeated) atomicAdd(&counts[pages], repeated);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)scratch, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (unsigned page = threadIdx.x; page <= pages; page += blockDim.x) {
    result[page == pages ? MARK_REPEATED : MARK_COUNTS + page] = __ldcg(&counts[page]);
    counts[page] = 0;
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *(volatile unsigned *)&result[MARK_SEQUENCE] = sequence;
}
