// gemm_bf16 is c = alpha*a*b + beta*c in bf16 with sums in fp32.
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(256) gemm_bf16(GEMM_PARAMS(unsigned short, unsigned short))
{
    gemm(GEMM_NAMES);
}
