// gemm_bf16_f32 is c = alpha*a*b + beta*c with a and b in bf16 and c in fp32.
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(256) gemm_bf16_f32(GEMM_PARAMS(unsigned short, float))
{
    gemm(GEMM_NAMES);
}
