// The float32 functions of the cells, operation by operation as in cuda/host/fmath/fmath.go, and to the same bits.
// Every operation is an intrinsic that rounds to nearest: the compiler may neither fuse nor approximate it under any
// option but -ftz, which the caller leaves off.
#pragma once

__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float quo(float a, float b) { return __fdiv_rn(a, b); }

__device__ __forceinline__ float min32(float a, float b) { return a < b ? a : b; }
__device__ __forceinline__ float max32(float a, float b) { return a > b ? a : b; }
__device__ __forceinline__ float clamp32(float x, float limit) { return x > limit ? limit : (x < -limit ? -limit : x); }
__device__ __forceinline__ float abs32(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }

// tanh32 is x(27+x^2)/(27+9x^2), which reaches 1 at 3 and stays there.
__device__ __forceinline__ float tanh32(float x) {
  x = clamp32(x, 3.0f);
  float q = mul(x, x);
  return quo(mul(x, add(27.0f, q)), add(27.0f, mul(9.0f, q)));
}

// exp32 is the natural exponential of x in [0, 80].
__device__ __forceinline__ float exp32(float x) {
  float y = mul(x, 1.442695f);
  int i = (int)y;
  float f = sub(y, (float)i);
  float s = add(mul(f, 0.0781455737f), 0.226173572f);
  s = add(mul(f, s), 0.695556856f);
  s = add(mul(f, s), 1.0f);
  return mul(s, __uint_as_float((unsigned)(i + 127) << 23));
}

// log2_rough is the exponent of a positive, normal x, and straight inside of an octave.
__device__ __forceinline__ float log2_rough(float x) {
  return sub(mul((float)(int)__float_as_uint(x), 1.0f / (1 << 23)), 127.0f);
}

// log32 is the natural logarithm of a positive, normal x: 2 artanh((m-1)/(m+1)) + e ln 2 for x = 2^e m.
__device__ __forceinline__ float log32(float x) {
  unsigned bits = __float_as_uint(x);
  int e = (int)(bits >> 23) - 127;
  float m = __uint_as_float((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.4142135f) {
    m = mul(m, 0.5f);
    e++;
  }
  float f = quo(sub(m, 1.0f), add(m, 1.0f));
  float q = mul(f, f);
  float s = add(mul(q, 0.11111111f), 0.14285715f);
  s = add(mul(q, s), 0.2f);
  s = add(mul(q, s), 0.33333334f);
  s = add(mul(q, s), 1.0f);
  return add(mul((float)e, 0.69314718f), mul(mul(2.0f, f), s));
}
