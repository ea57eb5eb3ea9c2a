// swarm_mark finds the pages of the observations of a launch, and counts the observations of agents that have an
// earlier one in the launch; see swarmset.go. The last block publishes both and clears them.
extern "C" __global__ void __launch_bounds__(256)
swarm_mark(const unsigned *ids, unsigned n, unsigned agents, unsigned per, unsigned pages, unsigned *seen,
           unsigned *touched, unsigned long long *scratch, unsigned sequence, unsigned *result) {
  __shared__ bool last;
  const unsigned step = gridDim.x * blockDim.x;
  unsigned repeated = 0;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const unsigned id = ids[i];
    if (id >= agents) continue;
    const unsigned bit = 1u << id % 32;
    if (atomicOr(&seen[id / 32], bit) & bit) repeated++;
    unsigned *page = &touched[id / per];
    if (*page == 0) *page = 1; // threads that see an old 0 store the same
  }
  if (repeated) atomicAdd(&touched[pages], repeated);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)scratch, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (unsigned page = threadIdx.x; page <= pages; page += blockDim.x) {
    result[page == pages ? MARK_REPEATED : MARK_TOUCHED + page] = __ldcg(&touched[page]);
    touched[page] = 0;
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *(volatile unsigned *)&result[MARK_SEQUENCE] = sequence;
}
