// graph_list writes the numbers of the agents whose state is 1, in any order; see graphset.go.
extern "C" __global__ void __launch_bounds__(128)
graph_list(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
           unsigned *active, unsigned *counts, unsigned which) {
  const Pages all = {pages, frames, page_bytes, per};
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + threadIdx.x % 32 * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned char states[4];
    all.read((unsigned)id, n, states);
    for (unsigned k = 0; k < 4; k++) append(active, counts + which, (unsigned)id + k, k < n && states[k] == 1);
  }
}
