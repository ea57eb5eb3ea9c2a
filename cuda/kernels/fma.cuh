// Float32 arithmetic of the cells whose agents are addressed: fused multiply-adds, each rounded once, by which
// host.fma32 goes too. Nothing here depends on the compiler's options or on the chip.
#pragma once

__device__ __forceinline__ float fma32(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// a b + c within [0, 1]; the saturation costs nothing.
__device__ __forceinline__ float fma_sat(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  float r;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
#else
  const float r = __fmaf_rn(a, b, c);
  return r > 0.0f ? (r < 1.0f ? r : 1.0f) : 0.0f;
#endif
}

// 1/d, rounded to nearest, for d from 2^-100 to 2^125. One Newton step by fma makes the chip's approximation that:
// reciprocals_f32 is the proof, which the conformance suite runs for every mantissa.
__device__ __forceinline__ float reciprocal(float d) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
#else
  return 1.0f / d;
#endif
}

// The logistic function of x / 2^e to 3e-5, by coefficients for e: a quotient of polynomials that passes 1/2 where
// tanh(x/2) is within 6e-5 of 1. The numerator may overflow where that is so.
struct Logistic {
  float a0, a1, a2, b0, b1;

  __device__ __forceinline__ void load(const float *from) {
    a0 = from[0], a1 = from[1], a2 = from[2], b0 = from[3], b1 = from[4];
  }

  __device__ __forceinline__ float operator()(float x) const {
    const float q = __fmul_rn(x, x);
    const float above = __fmul_rn(x, fma32(fma32(a2, q, a1), q, a0));
    const float below = fma32(__fadd_rn(q, b1), q, b0);
    return fma_sat(above, reciprocal(below), 0.5f);
  }
};
