// Four elements of a row of weights, from a column on that is a multiple of 4. ELEM is the type.
#pragma once

#define F32 1
#define BF16 2
#define Q8_0 3

// An IEEE float of 16 bits. float32 has each of its values.
__device__ __forceinline__ float half_of(unsigned v) {
  const unsigned sign = v >> 15 << 31, exponent = v >> 10 & 31, fraction = v & 1023;
  if (exponent == 0) return __uint_as_float(__float_as_uint(mul((float)fraction, 5.9604644775390625e-8f)) | sign);
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

__device__ __forceinline__ u64 row_bytes(unsigned columns) {
#if ELEM == F32
  return 4ull * columns;
#elif ELEM == BF16
  return 2ull * columns;
#else
  return 34ull * (columns / 32);
#endif
}

__device__ __forceinline__ void load4(float *to, const unsigned char *row, unsigned column) {
#if ELEM == F32
  const float4 v = *(const float4 *)(row + 4ull * column);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
#elif ELEM == BF16
  const uint2 v = *(const uint2 *)(row + 2ull * column);
  to[0] = __uint_as_float(v.x << 16), to[1] = __uint_as_float(v.x & 0xffff0000u);
  to[2] = __uint_as_float(v.y << 16), to[3] = __uint_as_float(v.y & 0xffff0000u);
#else
  const unsigned short *block = (const unsigned short *)(row + 34ull * (column / 32));
  const unsigned short *at = block + 1 + column % 32 / 2;
  const float d = half_of(block[0]);
  const unsigned a = at[0], b = at[1];
  to[0] = mul(d, (float)(signed char)(a & 255)), to[1] = mul(d, (float)(signed char)(a >> 8));
  to[2] = mul(d, (float)(signed char)(b & 255)), to[3] = mul(d, (float)(signed char)(b >> 8));
#endif
}
