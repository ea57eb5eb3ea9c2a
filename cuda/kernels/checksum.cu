// checksum adds the checksum of n bytes to sum[0], which the caller has set to zero. Each word of 8 bytes is mixed with
// its position and the mixed words are summed modulo 2^64: a changed, moved or missing word changes the sum, and the
// order in which threads and blocks finish does not. The last word is filled up with zero bytes, and n is mixed in
// once.
// Any launch shape; data starts at a multiple of 8 bytes.
__device__ __forceinline__ unsigned long long checksum_mix(unsigned long long word, unsigned long long i)
{
    // The finalizer of SplitMix64: every input bit reaches every output bit.
    unsigned long long z = word + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

extern "C" __global__ void checksum(const unsigned char *data, unsigned long long n, unsigned long long *sum)
{
    const unsigned long long *words = reinterpret_cast<const unsigned long long *>(data);
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long acc = 0;
    for (unsigned long long i = first; i < n / 8; i += step)
        acc += checksum_mix(words[i], i);
    if (first == 0) {
        unsigned long long tail = 0;
        for (unsigned long long i = n / 8 * 8; i < n; i++)
            tail |= (unsigned long long)data[i] << (8 * (i % 8));
        if (n % 8 != 0)
            acc += checksum_mix(tail, n / 8);
        acc += checksum_mix(n, ~0ull - 1);
    }
    // One atomic a warp. A block whose size is no multiple of 32 has a last warp with fewer threads.
    const unsigned int lane = threadIdx.x % 32;
    const unsigned int left = blockDim.x - threadIdx.x / 32 * 32;
    const unsigned int mask = left >= 32 ? 0xffffffffu : (1u << left) - 1;
    for (unsigned int d = 16; d > 0; d /= 2) {
        const unsigned long long other = __shfl_down_sync(mask, acc, d);
        if (lane + d < left)
            acc += other;
    }
    if (lane == 0)
        atomicAdd(sum, acc);
}
