// graph_recall lists the neurons that have spiked some ticks ago; see graphset.go. A lane has a neuron.
extern "C" __global__ void __launch_bounds__(128)
graph_recall(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per,
             unsigned agents, unsigned history, unsigned age, unsigned *active, unsigned *counts, unsigned which) {
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 32 < agents; w += warps) {
    const u64 id = w * 32 + threadIdx.x % 32;
    bool has = false;
    if (id < agents) {
      const unsigned *past = (const unsigned *)(pages + frames[id / per] * page_bytes + history);
      has = past[id % per] >> age & 1;
    }
    append(active, counts + which, (unsigned)id, has);
  }
}
