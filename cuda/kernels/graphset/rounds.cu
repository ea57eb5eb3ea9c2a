// graph_rounds writes the number of ticks of each group; see graphset.go.
extern "C" __global__ void __launch_bounds__(128)
graph_rounds(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned slots,
             unsigned groups, unsigned offset, unsigned ticks) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < groups; i += step)
    *(unsigned *)(pages + frames[i / slots] * page_bytes + offset + i % slots * 4) = ticks;
}
