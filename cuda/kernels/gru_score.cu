// gru_score_h8_f32 and its like compute the scores of items by the units of the agents that a launch of gru_step has
// stepped; see kernels.ScoreArgs. A thread has an observation. Numbers and sums are as in gru_agents.cuh, and the
// table is described in gru_table.go.
#include "agents.cuh"

#ifndef KERNEL_NAME
#define KERNEL_NAME gru_score
#endif
#ifndef HIDDEN
#define HIDDEN 8
#define ELEM F32
#endif

#define ITEMS_BIAS 8         // words of the table
#define UNIT_SCALE 16384.0f  // 2^14
#define NO_SCORE 0x7fc00000u // a NaN

// The product of two numbers of 16 bits, each a high and a low byte, over 256, without the product of the low bytes.
__device__ __forceinline__ int product(unsigned unit, int weight) {
  const int low = (int)(signed char)unit, high = (int)(signed char)((unit + 128u) >> 8);
  return high * weight + low * ((weight + 128) >> 8);
}

extern "C" __global__ void __launch_bounds__(256)
KERNEL_NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, const unsigned *layout,
            const unsigned *params, const unsigned *table, unsigned groups, const unsigned *agents, const int *items,
            unsigned count, const unsigned char *votes, unsigned of, float *scores, unsigned char *host,
            const unsigned *head) {
  const Swarm s(pages, page_bytes, frames, layout, params, groups, host);
  const unsigned n = counted(count, head);
  const int *biases = (const int *)table + ITEMS_BIAS;
  const unsigned *readout = table + ITEMS_BIAS + ((of + 3) & ~3u);
  Logistic logistic;
  logistic.load((const float *)table);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
    const unsigned item = (unsigned)items[i];
    unsigned score = NO_SCORE;
    if (item < of && votes[i] != AGENT_NO_VOTE) {
      const Place p = place(s, agents[i]);
      const uint4 *row = (const uint4 *)(s.variable(p.page, AGENT_VAR_ROW) + (u64)p.at * (2 * HIDDEN * ELEM::BYTES));
      const uint4 *weights = (const uint4 *)(readout + (u64)item * (HIDDEN / 2));
      int sum = biases[item];
#pragma unroll
      for (int k = 0; k < HIDDEN; k += 8) { // 8 weights are 16 bytes
        const uint4 w = weights[k / 8];
        const unsigned pairs[4] = {w.x, w.y, w.z, w.w};
        unsigned words[8];
        float units[8];
#pragma unroll
        for (int q = 0; q < 2 * ELEM::BYTES / 4; q++) {
          const uint4 v = row[(k * ELEM::BYTES) / 16 + q];
          words[4 * q] = v.x, words[4 * q + 1] = v.y, words[4 * q + 2] = v.z, words[4 * q + 3] = v.w;
        }
        ELEM::unpack(units, words, 8);
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const int weight = j % 2 ? (int)pairs[j / 2] >> 16 : (int)(short)(unsigned short)pairs[j / 2];
          // the last bits of a float32 that is 1.5 * 2^23 and more are an integer
          sum += product(__float_as_uint(fma32(units[j], UNIT_SCALE, 12582912.0f)), weight);
        }
      }
      score = __float_as_uint(logistic((float)sum));
    }
    scores[i] = __uint_as_float(score);
  }
}
