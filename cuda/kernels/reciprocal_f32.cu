// reciprocal_f32 stores the reciprocal of each float as the cells compute it: the proof that it is 1/x to the bit is a
// run over all mantissas.
#include "agents_words.cuh"
#include "fma.cuh"

extern "C" __global__ void
reciprocal_f32(const float *x, float *out, unsigned long long n) {
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
      i += (unsigned long long)gridDim.x * blockDim.x)
    out[i] = reciprocal(x[i]);
}
