// graph_send adds the weights of the links of neurons that have spiked to the sums of later ticks; see graphset.go. A
// warp adds the weights of a neuron, 128 links at a time. Sums of integers are the same in every order.
extern "C" __global__ void __launch_bounds__(128)
graph_send(const unsigned *active, unsigned *counts, unsigned which, int *sums, unsigned long long stride,
           unsigned slots, unsigned slot, unsigned age, const unsigned long long *offsets, const unsigned *columns,
           const int *weights, const unsigned char *delays, unsigned degree, unsigned weighted, unsigned listed,
           unsigned least, unsigned span, unsigned key0, unsigned key1, unsigned exciting, unsigned excitation,
           unsigned inhibition, unsigned partial, const unsigned *lengths) {
  const Links links = {offsets, degree};
  const unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const unsigned warps = gridDim.x * (blockDim.x / 32), count = counts[which];
  if (warp == 0 && lane == 0) counts[1 - which] = 0; // of the list that the next step makes
  for (unsigned i = warp; i < count; i += warps) {
    const unsigned id = active[i];
    const u64 begin = links.first(id), end = partial ? begin + lengths[id] : links.first((u64)id + 1);
    const int weight = (int)(id < exciting ? excitation : inhibition);
    unsigned block = lane;
    for (u64 first = begin; first < end; first += 128, block += 32) {
      unsigned draws[4] = {0, 0, 0, 0};
      if (span > 1 && !listed) {
        const Words words(key0, key1, block, id, 1, 0);
        for (unsigned u = 0; u < 4; u++) draws[u] = words.w[u];
      }
#pragma unroll
      for (unsigned u = 0; u < 4; u++) {
        const u64 at = first + 32 * u + lane;
        if (at >= end) continue;
        const unsigned delay = listed ? delays[at] : least + (unsigned)((u64)draws[u] * span >> 32);
        if (delay <= age) continue; // it has arrived
        unsigned to = slot + delay - 1 - age;
        if (to >= slots) to -= slots;
        atomicAdd(sums + to * stride + __ldg(columns + at), weighted ? __ldg(weights + at) : weight);
      }
    }
  }
}
