// array_sum_*: out[s] is the sum of span s of an array in double. A span is {first element, elements} of at most 4096
// elements. The order of additions is fixed, so the bits depend on no launch shape: element i is added to lane
// i modulo 256 in the order of the elements, and lanes are added in halves, the upper to the lower. A sum that is
// no number is always the same NaN. Sums of longer arrays are sums of these sums. Blocks are whole warps.
extern "C" __global__ void __launch_bounds__(256)
NAME(const Element *in, const unsigned long long *spans, unsigned int n, double *out)
{
    __shared__ double lanes[256];
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const Element *at = in + spans[2 * s];
        const unsigned int count = (unsigned int)spans[2 * s + 1];
        for (unsigned int lane = threadIdx.x; lane < 256; lane += blockDim.x) {
            double sum = 0;
            if (count == 4096) {
                Element v[16]; // all loads are under way together
#pragma unroll
                for (unsigned int i = 0; i < 16; i++)
                    v[i] = at[256 * i + lane];
#pragma unroll
                for (unsigned int i = 0; i < 16; i++)
                    sum += (double)v[i];
            } else {
                for (unsigned int i = lane; i < count; i += 256)
                    sum += (double)at[i];
            }
            lanes[lane] = sum;
        }
        for (unsigned int half = 128; half >= 32; half /= 2) {
            __syncthreads();
            for (unsigned int lane = threadIdx.x; lane < half; lane += blockDim.x)
                lanes[lane] += lanes[lane + half];
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            double sum = lanes[threadIdx.x];
            for (unsigned int d = 16; d > 0; d /= 2)
                sum += __shfl_down_sync(0xffffffffu, sum, d);
            if (threadIdx.x == 0)
                reinterpret_cast<unsigned long long *>(out)[s] =
                    sum == sum ? array_double_bits(sum) : 0x7ff8000000000001ull;
        }
        __syncthreads();
    }
}
