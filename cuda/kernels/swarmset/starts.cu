// swarm_starts replaces the counts of tiles by the sums before them, and makes the tables of the nodes of a fusion by
// vote; see swarmset.go. A block has a candidate at a time; the last block makes the tables.
extern "C" __global__ void __launch_bounds__(1024)
swarm_starts(unsigned *counts, unsigned tiles, unsigned candidates, unsigned levels, unsigned *nodes, unsigned *firsts,
             unsigned long long *scratch) {
  __shared__ unsigned warps[32];
  __shared__ bool last;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned per = (tiles + blockDim.x - 1) / blockDim.x;
  for (unsigned c = blockIdx.x; c < candidates; c += gridDim.x) {
    unsigned *mine = counts + (u64)c * tiles;
    const unsigned first = threadIdx.x * per < tiles ? threadIdx.x * per : tiles,
                   end = tiles - first < per ? tiles : first + per;
    unsigned sum = 0;
#pragma unroll 8
    for (unsigned i = first; i < end; i++) sum += mine[i];
    unsigned upto = sum; // of the lanes of the warp
#pragma unroll
    for (unsigned d = 1; d < 32; d *= 2) {
      const unsigned v = __shfl_up_sync(FULL, upto, d);
      if (lane >= d) upto += v;
    }
    __syncthreads(); // all threads have read warps of the candidate before
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    unsigned before = upto - sum;
    for (unsigned w = 0; w < warp; w++) before += warps[w];
    if (threadIdx.x == blockDim.x - 1) nodes[2 * c + 1] = before + sum;
    for (unsigned i = first; i < end; i++) {
      const unsigned v = mine[i];
      mine[i] = before;
      before += v;
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)scratch, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last || threadIdx.x >= levels) return;
  // Thread l makes the table of level l.
  unsigned place = 0, items = 0, *to = firsts + threadIdx.x * ((candidates + 4) / 4 * 4);
  for (unsigned c = 0; c < candidates; c++) {
    const unsigned n = __ldcg(&nodes[2 * c + 1]);
    if (threadIdx.x == 0) nodes[2 * c] = place;
    place += (n + RUN_ROWS - 1) / RUN_ROWS * RUN_ROWS;
    to[c] = items;
    unsigned own = n;
    for (unsigned l = 0; l <= threadIdx.x; l++) own = own / RUN_ROWS + (own % RUN_ROWS != 0);
    items += threadIdx.x == levels - 1 ? 1 : own;
  }
  to[candidates] = items;
}
