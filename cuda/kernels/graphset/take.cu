// graph_take reads a word of each of n agents; see graphset.go.
extern "C" __global__ void __launch_bounds__(128)
graph_take(const unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per,
           unsigned offset, const unsigned *ids, unsigned n, unsigned *values) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    values[i] = ((const unsigned *)(pages + frames[ids[i] / per] * page_bytes + offset))[ids[i] % per];
}
