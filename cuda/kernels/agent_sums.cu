// agent_sums adds up the embeddings of agents, run by run, in the order of the agents of each; see
// kernels.AgentSumsArgs. A thread has a run: its sums stay in registers, nothing is exchanged, and rows of several
// agents are on their way at once, since what must not be added is read all the same.
#include "agents.cuh"

#define IN_FLIGHT 4 // agents: four rows of 32 bytes, of 10 million agents in runs of 128, are 10 MB on their way

// N words of a row, whose address is a multiple of their size or of 16 bytes.
template <int N> struct Row {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const uint4 v = __ldcs((const uint4 *)(from + 4 * k));
      to[k] = v.x, to[k + 1] = v.y, to[k + 2] = v.z, to[k + 3] = v.w;
    }
  }
};

template <> struct Row<1> {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
    to[0] = __ldcs((const unsigned *)from);
  }
};

// Adds a run of embeddings of WIDTH elements, one every STRIDE elements of the variable at offset, to sums, and returns
// how many agents are in them.
template <int WIDTH, int STRIDE, class E>
__device__ unsigned add_run(const Swarm &s, unsigned offset, const unsigned *order, unsigned first, unsigned rows,
    float *sums) {
  const int words = WIDTH * E::BYTES / 4;
  const unsigned per = s.agents * s.slots;
  float sum[WIDTH];
#pragma unroll
  for (int d = 0; d < WIDTH; d++) sum[d] = sums[d];
  unsigned added = 0;
  for (unsigned k = 0; k < rows; k += IN_FLIGHT) {
    unsigned row[IN_FLIGHT][words];
    bool counts[IN_FLIGHT];
#pragma unroll
    for (unsigned j = 0; j < IN_FLIGHT; j++) {
      const unsigned place = first + (k + j < rows ? k + j : k), agent = order ? order[place] : place,
          page = agent / per, at = agent - page * per;
      const unsigned frame = s.frames[page];
      counts[j] = k + j < rows && frame >> AGENT_HOST_BIT == 0;
      const unsigned char *from = s.pages + (counts[j] ? frame : 0) * s.page_bytes;
      Row<words>::load(row[j], from + offset + (u64)at * (STRIDE * E::BYTES));
      counts[j] = counts[j] && from[s.offsets[AGENT_VAR_VOTE] + at] != 0;
    }
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
      float v[WIDTH];
      E::unpack(v, row[j], WIDTH);
#pragma unroll
      for (int d = 0; d < WIDTH; d++) counts[j] = counts[j] && (__float_as_uint(v[d]) & 0x7f800000u) != 0x7f800000u;
      if (!counts[j]) continue;
#pragma unroll
      for (int d = 0; d < WIDTH; d++) sum[d] = __fadd_rn(sum[d], v[d]);
      added++;
    }
  }
#pragma unroll
  for (int d = 0; d < WIDTH; d++) sums[d] = sum[d];
  return added;
}

extern "C" __global__ void __launch_bounds__(256)
agent_sums(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
           const unsigned *params, unsigned groups, unsigned variable, unsigned width, unsigned bf16,
           const unsigned *order, unsigned ordered, const unsigned *runs, unsigned n, float *sums, unsigned *counts) {
  const Swarm s(pages, page_bytes, frames, layout, params, groups);
  const unsigned offset = layout[2 + variable];
  if (!ordered) order = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    const unsigned first = runs[2 * i], rows = runs[2 * i + 1];
    float *to = sums + i * width;
    switch (2 * width + bf16) {
    case 2: counts[i] = add_run<1, 1, F32>(s, offset, order, first, rows, to); break;
    case 16: counts[i] = add_run<8, 16, F32>(s, offset, order, first, rows, to); break;
    case 17: counts[i] = add_run<8, 16, BF16>(s, offset, order, first, rows, to); break;
    case 32: counts[i] = add_run<16, 32, F32>(s, offset, order, first, rows, to); break;
    case 33: counts[i] = add_run<16, 32, BF16>(s, offset, order, first, rows, to); break;
    case 64: counts[i] = add_run<32, 64, F32>(s, offset, order, first, rows, to); break;
    case 65: counts[i] = add_run<32, 64, BF16>(s, offset, order, first, rows, to); break;
    }
  }
}
