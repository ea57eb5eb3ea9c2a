// The gated recurrent unit of agent-addressed swarms, a unit a lane: each lane keeps the weights of its unit in registers, and a warp
// steps 32 / H agents at once, whose inputs and units stand in shared memory and are read by all lanes that need them. It is
// torch.nn.GRUCell; cuda/host/gru_agents.go does the same operation by operation.
#pragma once

#include "agents.cuh"

#ifndef HIDDEN
#define HIDDEN 8
#define ELEM F32
#define GRU_BLOCKS 5 // a multiprocessor
#endif

#define GRU_BLOCK 128
#define ROW (HIDDEN + 4) // floats from one agent's row to the next: no two lanes of a quarter of a warp then meet in a bank
#define VECTORS (HIDDEN / ELEM::VALUES) // of 16 bytes in a row of state
#define AHEAD (HIDDEN <= 16) // the next agents fit into registers beside the weights
#define FULL 0xffffffffu

// Weights of one unit.
struct Unit {
  float input[3][HIDDEN], units[3][HIDDEN]; // of the gates r, z, n
  float4 bias;                              // of r, z, of the inputs' part of n and of the units' part

  __device__ __forceinline__ void load(const float *weights, unsigned j) {
#pragma unroll
    for (int g = 0; g < 3; g++) {
      const float *row = weights + (g * HIDDEN + j) * 2 * HIDDEN;
#pragma unroll
      for (int k = 0; k < HIDDEN; k++) input[g][k] = row[k], units[g][k] = row[HIDDEN + k];
    }
    const float *b = weights + 6 * HIDDEN * HIDDEN + 4 * j;
    bias = make_float4(b[0], b[1], b[2], b[3]);
  }

  // The unit after a step of an agent whose row of inputs is x and whose units are h; own is this unit.
  __device__ __forceinline__ float step(const float *x, const float *h, float own) const {
    float r = bias.x, z = bias.y, n = bias.z, m = bias.w;
#pragma unroll
    for (int k = 0; k < HIDDEN; k += 4) {
      const float4 v = *(const float4 *)(x + k);
      const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        r = fma32(input[0][k + i], each[i], r);
        z = fma32(input[1][k + i], each[i], z);
        n = fma32(input[2][k + i], each[i], n);
      }
    }
#pragma unroll
    for (int k = 0; k < HIDDEN; k += 4) {
      const float4 v = *(const float4 *)(h + k);
      const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        r = fma32(units[0][k + i], each[i], r);
        z = fma32(units[1][k + i], each[i], z);
        m = fma32(units[2][k + i], each[i], m);
      }
    }
    r = logistic(r);
    z = logistic(z);
    n = fma32(2.0f, logistic(fma32(r, m, n)), -1.0f); // tanh: the rows of n are doubled
    return fma32(z, __fsub_rn(own, n), n);
  }
};

// Steps the 32 agents whose rows of units h and of inputs x the warp has in shared memory, in place.
__device__ __forceinline__ void step_rows(const Unit &unit, float *h, const float *x) {
  const int lanes = 32 / HIDDEN, together = HIDDEN == 8 ? 2 : 1; // agents at once, and such steps at once
  const unsigned lane = threadIdx.x % 32, j = lane % HIDDEN;
  const unsigned first = lane / HIDDEN * ROW;
#pragma unroll 1
  for (int i = 0; i < HIDDEN; i += together) {
    float y[together];
#pragma unroll
    for (int k = 0; k < together; k++) {
      const unsigned row = first + (i + k) * lanes * ROW;
      y[k] = ELEM::round(unit.step(x + row, h + row, h[row + j]));
    }
    __syncwarp(FULL);
#pragma unroll
    for (int k = 0; k < together; k++) h[first + (i + k) * lanes * ROW + j] = y[k];
  }
  __syncwarp(FULL);
}

// The candidate of an agent by its units: the largest sum, of equal ones the smallest index. readout is [C][H] and [C].
__device__ __forceinline__ unsigned elected(const float *readout, const float *row, unsigned candidates) {
  float h[HIDDEN], most = __uint_as_float(0xff800000u); // less than any sum
#pragma unroll
  for (int k = 0; k < HIDDEN; k += 4) {
    const float4 v = *(const float4 *)(row + k);
    h[k] = v.x, h[k + 1] = v.y, h[k + 2] = v.z, h[k + 3] = v.w;
  }
  unsigned best = 0;
#pragma unroll 1
  for (unsigned c = 0; c < candidates; c++) {
    float sum = readout[candidates * HIDDEN + c];
#pragma unroll
    for (int k = 0; k < HIDDEN; k += 4) {
      const float4 w = *(const float4 *)(readout + c * HIDDEN + k);
      sum = fma32(w.x, h[k], sum);
      sum = fma32(w.y, h[k + 1], sum);
      sum = fma32(w.z, h[k + 2], sum);
      sum = fma32(w.w, h[k + 3], sum);
    }
    if (sum > most) most = sum, best = c;
  }
  return best;
}

// What a block shares: the readout, and rows of units and inputs for each warp.
struct Shared {
  float4 readout[(AGENT_MOST_CANDIDATES * (HIDDEN + 1) + 3) / 4];
  float4 units[GRU_BLOCK / 32][32 * ROW / 4], inputs[GRU_BLOCK / 32][32 * ROW / 4];
};

__device__ __forceinline__ void load_readout(Shared *shared, const float *weights, unsigned candidates) {
  const float *from = weights + 6 * HIDDEN * HIDDEN + 4 * HIDDEN;
  for (unsigned i = threadIdx.x; i < candidates * (HIDDEN + 1); i += blockDim.x) ((float *)shared->readout)[i] = from[i];
}
