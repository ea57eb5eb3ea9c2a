// Random numbers of kernels.
#pragma once

#include "fmath.cuh"

// Philox4x32-10, as kernels.Philox: word k % 4 of the block under the counter {k / 4, a, b, c}.
__device__ __forceinline__ unsigned philox(unsigned key0, unsigned key1, unsigned k, unsigned a, unsigned b,
    unsigned c) {
  unsigned c0 = k / 4, c1 = a, c2 = b, c3 = c;
  for (int i = 0; i < 10; i++) {
    const unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(p1 >> 32) ^ c1 ^ key0;
    c1 = (unsigned)p1;
    c2 = (unsigned)(p0 >> 32) ^ c3 ^ key1;
    c3 = (unsigned)p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return k % 4 < 2 ? (k % 4 ? c1 : c0) : (k % 4 == 3 ? c3 : c2);
}

// A number in [0, 1), a multiple of 2^-24.
__device__ __forceinline__ float unit_of(unsigned v) { return mul((float)(v >> 8), 5.9604644775390625e-8f); }

// Half of the key of a seed that stands in weights in parts of 16 bits; see SeedWords in custom.go.
__device__ __forceinline__ unsigned seed_key(const float *weights) {
  return (unsigned)weights[0] | (unsigned)weights[1] << 16;
}
