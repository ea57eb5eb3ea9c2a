// array_digits_*: counts[256 digits][tiles]: how many keys of each tile have which digit, the 8 bits of a key from
// shift on. Tile t has the keys from t times share on, share of them or what is left. n < 2^32. Any launch shape.
extern "C" __global__ void __launch_bounds__(1024)
NAME(const Key *keys, unsigned long long n, unsigned int shift, unsigned long long share, unsigned int tiles,
     unsigned int *counts)
{
    __shared__ unsigned int local[256];
    for (unsigned int t = blockIdx.x; t < tiles; t += gridDim.x) {
        for (unsigned int d = threadIdx.x; d < 256; d += blockDim.x)
            local[d] = 0;
        __syncthreads();
        const unsigned long long first = t * share, end = first + share < n ? first + share : n;
        for (unsigned long long i = first + threadIdx.x; i < end; i += blockDim.x)
            atomicAdd(local + (unsigned int)(keys[i] >> shift & 255), 1u);
        __syncthreads();
        for (unsigned int d = threadIdx.x; d < 256; d += blockDim.x)
            counts[d * tiles + t] = local[d];
        __syncthreads();
    }
}
