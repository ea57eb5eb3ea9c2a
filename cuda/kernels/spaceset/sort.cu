// space_sort copies the agents of a list to their places in a sorted one; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_sort(const uint4 *positions, const uint4 *velocities, unsigned agents, unsigned moving, unsigned nx, unsigned ny,
           unsigned nz, const unsigned *starts, const unsigned *ranks, uint4 *sorted, uint4 *sorted_velocities) {
  const Bins bins = {nx, ny, nz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const uint4 p = positions[i];
    const unsigned at = starts[bins.of(p)] + ranks[i];
    sorted[at] = p;
    if (moving) sorted_velocities[at] = velocities[i];
  }
}
