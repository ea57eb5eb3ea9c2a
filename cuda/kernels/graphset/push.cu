// graph_push adds the weights of the links of agents that have spiked to the sums of the agents at their other ends;
// see graphset.go. A warp adds the weights of an agent. Sums of integers are the same in every order.
extern "C" __global__ void __launch_bounds__(128)
graph_push(const unsigned *active, unsigned *counts, unsigned which, int *sums, const unsigned long long *offsets,
           const unsigned *columns, const int *weights, unsigned degree, unsigned weighted, unsigned exciting,
           unsigned excitation, unsigned inhibition, unsigned partial, const unsigned *lengths) {
  const Links links = {offsets, degree};
  const unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const unsigned warps = gridDim.x * (blockDim.x / 32), count = counts[which];
  if (warp == 0 && lane == 0) counts[1 - which] = 0; // of the list that the next step makes
  for (unsigned i = warp; i < count; i += warps) {
    const unsigned id = active[i];
    const u64 begin = links.first(id), end = partial ? begin + lengths[id] : links.first((u64)id + 1);
    const int weight = (int)(id < exciting ? excitation : inhibition);
#pragma unroll 4
    for (u64 at = begin + lane; at < end; at += 32)
      atomicAdd(sums + __ldg(columns + at), weighted ? __ldg(weights + at) : weight);
  }
}
