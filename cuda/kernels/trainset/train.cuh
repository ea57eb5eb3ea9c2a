// What the kernels that train share. Every operation of float32 rounds, and no two are fused but by fma.
#pragma once

// The dot product of PTX of four signed bytes, by which c grows. Not by the name of the toolkit, which NVRTC of CUDA 11
// does not know.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ int dot4(unsigned a, unsigned b, int c) {
  asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
#else // emulated on the CPU
__device__ __forceinline__ int dot4(unsigned a, unsigned b, int c) { return __dp4a((int)a, (int)b, c); }
#endif

// 2^e, of a normal float32.
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((unsigned)(e + 127) << 23); }

// Where weights stand in their vector: gates, rows and biases of the readout, and rows of the embedding.
struct Sizes {
  unsigned units, square, gates;
  unsigned long long readout, bias, all; // behind the rows, the biases, and all

  __device__ __forceinline__ Sizes(unsigned units, unsigned readout_rows, unsigned embed_rows)
      : units(units), square(units * units), gates(6 * square + 6 * units) {
    readout = gates + (unsigned long long)readout_rows * units;
    bias = readout + ((readout_rows + 3) & ~3u);
    all = bias + (unsigned long long)embed_rows * units;
  }

  // The gate of weight i of a matrix, hidden [3][P][P] or behind it input [3][P][P].
  __device__ __forceinline__ unsigned gate(unsigned i) const { return i / square % 3; }
};

// A weight of a matrix of gates as the table has it, before its scale.
__device__ __forceinline__ float table_weight(const Sizes &s, unsigned i, float v) {
  if (i >= 3 * s.square) v = __fmul_rn(v, (float)(1 << (UNIT_BITS - INPUT_BITS)));
  return s.gate(i) == 2 ? __fmul_rn(v, 2.0f) : v;
}

// Bias which of unit j: of the gates r and z, and of the inputs' and the units' part of n. biases are [2][3][P].
__device__ __forceinline__ double table_bias(const float *biases, unsigned units, unsigned which, unsigned j) {
  if (which >= 2) return 2.0 * (double)biases[(which == 2 ? 2 : 5) * units + j];
  return (double)biases[which * units + j] + (double)biases[(3 + which) * units + j];
}
