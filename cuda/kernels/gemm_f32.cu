// gemm_f32 is c = alpha*a*b + beta*c in fp32.
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(256) gemm_f32(GEMM_PARAMS(float, float))
{
    gemm(GEMM_NAMES);
}
