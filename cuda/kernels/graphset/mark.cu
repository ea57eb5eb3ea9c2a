// graph_mark writes a bit for each agent, 1 if it is in a state; see graphset.go. A lane has four agents.
extern "C" __global__ void __launch_bounds__(128)
graph_mark(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
           unsigned state, unsigned *bits) {
  const Pages all = {pages, frames, page_bytes, per};
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + threadIdx.x % 32 * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned char states[4];
    all.read((unsigned)id, n, states);
    unsigned four = 0;
    for (unsigned k = 0; k < 4; k++) four |= (unsigned)(k < n && states[k] == state) << k;
    write_bits(bits, w, four, agents);
  }
}
