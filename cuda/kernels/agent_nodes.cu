// agent_nodes updates knowledge nodes by the sums of their agents; see kernels.AgentNodesArgs.
#include "agent_node.cuh"

extern "C" __global__ void agent_nodes(const unsigned long long *totals, unsigned nodes, unsigned width, unsigned turn,
                                       unsigned merge, unsigned rate, float *values, unsigned *flags) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += gridDim.x * blockDim.x) {
    const u64 *from = totals + ((u64)turn * nodes + i) * (width + 1), n = from[width];
    const bool merged = flags[i] & AGENT_NODE_MERGED, learned = flags[i] & AGENT_NODE_LEARNED;
    flags[i] = merged || (n && !learned) ? AGENT_NODE_MERGED : 0;
    if (!n || learned) continue;
    for (unsigned k = 0; k < width; k++) {
      float *to = values + (u64)i * width + k;
      const long long sum = (long long)from[k] - (merge == AGENT_MERGE_MAX ? (long long)AGENT_UNIT_SCALE : 0);
      *to = merged_unit(sum, merge == AGENT_MERGE_MAX ? 1.0 : (double)n, merge, __uint_as_float(rate), merged, *to);
    }
  }
}
