// graph_count counts the links of each row that go to some consecutive agents; see graphset.go. A warp has a row.
extern "C" __global__ void __launch_bounds__(128)
graph_count(const unsigned *columns, const unsigned long long *offsets, unsigned degree, unsigned rows, unsigned low,
            unsigned size, unsigned *lengths) {
  const Links links = {offsets, degree};
  const unsigned lane = threadIdx.x % 32;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 row = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    const u64 end = links.first(row + 1);
    unsigned count = 0;
#pragma unroll 4
    for (u64 at = links.first(row) + lane; at < end; at += 32) count += __ldg(columns + at) - low < size;
    for (unsigned d = 16; d > 0; d /= 2) count += __shfl_xor_sync(0xffffffffu, count, d);
    if (lane == 0) lengths[row] = count;
  }
}
