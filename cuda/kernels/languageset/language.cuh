// What the kernels of language models share. Every operation of float32 rounds, and no two are fused but by fma32.
#pragma once

typedef unsigned long long u64;

#define WARP 0xffffffffu

__device__ __forceinline__ float warp_xor(float v, unsigned d) {
  return __uint_as_float(__shfl_xor_sync(WARP, __float_as_uint(v), (int)d));
}

// e^x, as fmath.PowerOfE.
__device__ __forceinline__ float power_of_e(float x) {
  x = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
  const float whole = add(mul(x, 1.44269504f), 12582912.0f), n = sub(whole, 12582912.0f);
  const float f = sub(sub(x, mul(n, 0.693359375f)), mul(n, -2.12194440e-4f));
  float s = add(mul(f, 1.9875691500e-4f), 1.3981999507e-3f);
  s = add(mul(f, s), 8.3334519073e-3f);
  s = add(mul(f, s), 4.1665795894e-2f);
  s = add(mul(f, s), 1.6666665459e-1f);
  s = add(mul(f, s), 5.0000001201e-1f);
  s = add(add(mul(mul(f, f), s), f), 1.0f);
  return mul(s, __uint_as_float((__float_as_uint(whole) + 127) << 23));
}

// The sum of 32 values of the lanes, in all lanes: of lanes 16 apart, 8, 4, 2 and 1.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (unsigned d = 16; d > 0; d /= 2) v = add(v, warp_xor(v, d));
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (unsigned d = 16; d > 0; d /= 2) v = max32(v, warp_xor(v, d));
  return v;
}

// The sum of a warp's 128 partial sums, four in a lane.
__device__ __forceinline__ float sum_of(const float *s) { return warp_sum(add(add(s[0], s[1]), add(s[2], s[3]))); }

// 1 / sqrt(mean of squares + epsilon) of n values, in all lanes of a warp.
__device__ __forceinline__ float norm_of(const float *x, unsigned n, float epsilon) {
  float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (unsigned c = threadIdx.x % 32 * 4; c < n; c += 128) {
    const float4 v = *(const float4 *)(x + c);
    s[0] = fma32(v.x, v.x, s[0]), s[1] = fma32(v.y, v.y, s[1]), s[2] = fma32(v.z, v.z, s[2]),
    s[3] = fma32(v.w, v.w, s[3]);
  }
  return quo(1.0f, __fsqrt_rn(add(quo(sum_of(s), (float)n), epsilon)));
}

// Where the pages of agents are. A row of rows is a token, its position, and the place in frames of its agent's first.
struct Pages {
  unsigned char *pool;
  const unsigned *frames;
  u64 frame_bytes;
  unsigned positions, layer, width; // positions of a page; values of a position

  // The values of a position: keys with which of 0, values with 1.
  __device__ __forceinline__ float *at(unsigned first, unsigned position, unsigned which) const {
    const u64 frame = frames[first + position / positions];
    return (float *)(pool + frame * frame_bytes) +
           ((u64)(2 * layer + which) * positions + position % positions) * width;
  }
};
