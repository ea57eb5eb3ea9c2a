// fuse_place puts each agent at its place among the agents of its node; see kernels.FusePlaceArgs. It reads where
// the node's places start, from a table that stays in the cache, and has several agents on their way a thread.
#include "fuse_added.cuh"

extern "C" __global__ void __launch_bounds__(FUSE_MAX_BLOCK)
fuse_place(const unsigned *members, unsigned agents, unsigned nodes, const unsigned *starts, const unsigned *numbers,
    unsigned *order) {
  const int each = 4;
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 base = (u64)blockIdx.x * blockDim.x + threadIdx.x; base < agents; base += each * step) {
    unsigned id[each], at[each], number[each];
#pragma unroll
    for (int j = 0; j < each; j++) {
      const u64 i = base + j * step;
      id[j] = i < agents ? members[i] : NO_NODE;
      number[j] = i < agents ? numbers[i] : 0;
    }
#pragma unroll
    for (int j = 0; j < each; j++) at[j] = id[j] < nodes ? starts[id[j]] + number[j] : 0;
#pragma unroll
    for (int j = 0; j < each; j++)
      if (id[j] < nodes) order[at[j]] = (unsigned)(base + j * step) | (number[j] == 0 ? FUSE_HEAD : 0);
  }
}
