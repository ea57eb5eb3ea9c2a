// space_count counts the agents of each bin, and gives each agent a number in its bin; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_count(const uint4 *positions, unsigned agents, unsigned nx, unsigned ny, unsigned nz, unsigned *counts,
            unsigned *ranks) {
  const Bins bins = {nx, ny, nz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step)
    ranks[i] = atomicAdd(counts + bins.of(positions[i]), 1u);
}
