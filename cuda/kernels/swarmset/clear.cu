// swarm_clear clears the bits that swarm_mark has set for the same ids. All bits of a word belong to ids of the launch,
// so that a word is cleared as a whole.
extern "C" __global__ void __launch_bounds__(256)
swarm_clear(const unsigned *ids, unsigned n, unsigned agents, unsigned *seen) {
  const unsigned step = gridDim.x * blockDim.x;
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    if (ids[i] < agents) seen[ids[i] / 32] = 0;
}
