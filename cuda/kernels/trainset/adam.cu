// train_adam steps weights against their gradient; see trainset.go. A thread takes four weights at a time.
struct Step {
  float coefficient, decay, fresh_mean, beta2, fresh_square, rate, root, epsilon;

  __device__ __forceinline__ void operator()(float *p, float *a, float *v, float g) const {
    g = __fadd_rn(__fmul_rn(g, coefficient), __fmul_rn(decay, *p));
    *a = __fmaf_rn(fresh_mean, __fsub_rn(g, *a), *a);
    *v = __fmaf_rn(__fmul_rn(fresh_square, g), g, __fmul_rn(*v, beta2));
    const float below = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), root), epsilon);
    *p = __fsub_rn(*p, __fdiv_rn(__fmul_rn(rate, *a), below));
  }
};

extern "C" __global__ void __launch_bounds__(256, 6)
train_adam(float *weights, float *mean, float *square, const float *gradient, const unsigned *control, float decay,
           float fresh_mean, float beta2, float fresh_square, float rate, float root, float epsilon,
           unsigned long long count) {
  const float norm = __uint_as_float(control[CONTROL_NORM]);
  if (!(norm <= 3.402823466e38f)) return;
  const Step step = {__uint_as_float(control[CONTROL_COEFFICIENT]), decay, fresh_mean, beta2, fresh_square, rate, root,
                     epsilon};
  const unsigned long long fours = count / 4, threads = (unsigned long long)gridDim.x * blockDim.x;
  const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned long long i = first; i < fours; i += threads) {
    float4 p = __ldcs((const float4 *)weights + i), a = __ldcs((const float4 *)mean + i);
    float4 v = __ldcs((const float4 *)square + i);
    const float4 g = __ldcs((const float4 *)gradient + i);
    step(&p.x, &a.x, &v.x, g.x);
    step(&p.y, &a.y, &v.y, g.y);
    step(&p.z, &a.z, &v.z, g.z);
    step(&p.w, &a.w, &v.w, g.w);
    __stcs((float4 *)weights + i, p);
    __stcs((float4 *)mean + i, a);
    __stcs((float4 *)square + i, v);
  }
  for (unsigned long long i = fours * 4 + first; i < count; i += threads)
    step(weights + i, mean + i, square + i, gradient[i]);
}
