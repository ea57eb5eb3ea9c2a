// graph_links makes the links of a generated graph; see graphset.go. A thread makes two of them.

// Link number pair*2+odd of an agent: a random other agent if the draw says so, else the agent at the distance pair+1
// on the ring, ahead if odd is 0 and behind if it is 1.
__device__ __forceinline__ unsigned link(unsigned agents, unsigned id, unsigned pair, unsigned odd, u64 rewire,
                                         unsigned draw, unsigned target) {
  if (draw < rewire) {
    const unsigned other = (unsigned)((u64)target * (agents - 1) >> 32);
    return other + (other >= id);
  }
  const u64 distance = (pair + 1) % agents;
  return (unsigned)((odd ? id + agents - distance : id + distance) % agents);
}

extern "C" __global__ void __launch_bounds__(128)
graph_links(unsigned *columns, unsigned agents, unsigned degree, unsigned long long rewire, unsigned key0,
            unsigned key1) {
  const unsigned pairs = (degree + 1) / 2;
  const u64 all = (u64)agents * pairs, step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const unsigned id = (unsigned)(i / pairs), pair = (unsigned)(i % pairs);
    const Words block(key0, key1, pair, id, 0, 0);
    const u64 at = (u64)id * degree + 2 * pair;
    columns[at] = link(agents, id, pair, 0, rewire, block.w[0], block.w[1]);
    if (2 * pair + 1 < degree) columns[at + 1] = link(agents, id, pair, 1, rewire, block.w[2], block.w[3]);
  }
}
