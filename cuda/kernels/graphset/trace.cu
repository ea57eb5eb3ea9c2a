// graph_trace counts the agents in a state, a row of consecutive agents each; see graphset.go. A lane has four agents.
extern "C" __global__ void __launch_bounds__(128)
graph_trace(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
            unsigned state, unsigned per_row, unsigned rows, unsigned column, unsigned columns, unsigned *counts) {
  const Pages all = {pages, frames, page_bytes, per};
  unsigned *const to = counts + (u64)column * rows, *const next = counts + (u64)((column + 1) % columns) * rows;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += (u64)gridDim.x * blockDim.x) next[i] = 0;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + threadIdx.x % 32 * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned char states[4];
    all.read((unsigned)id, n, states);
    unsigned count = 0;
    for (unsigned k = 0; k < n; k++) {
      if (states[k] != state) continue;
      count++;
      if (per_row % 128) atomicAdd(to + ((unsigned)id + k) / per_row, 1u);
    }
    if (per_row % 128) continue;
    for (unsigned d = 16; d > 0; d /= 2) count += __shfl_xor_sync(0xffffffffu, count, d);
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(to + id / per_row, count); // a warp has agents of one row
  }
}
