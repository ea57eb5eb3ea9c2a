// array_keys_*: writes the sort key of each element of each span, and its place in its array. A span has four words:
// first element, elements, the element that its array begins with, and 1 where the largest comes first. Each bit
// that is set in any key is set in bits[0], and each that is set in all keys stays set in bits[1]; the host begins
// with 0 and with all ones. Blocks are whole warps.
extern "C" __global__ void __launch_bounds__(1024)
NAME(const Element *in, const unsigned long long *spans, unsigned int n, Key *keys, unsigned int *order,
     unsigned long long *bits)
{
    unsigned long long any = 0, all = ~0ull;
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const unsigned long long first = spans[4ull * s], count = spans[4ull * s + 1], base = spans[4ull * s + 2];
        const bool descending = spans[4ull * s + 3] != 0;
        for (unsigned long long i = threadIdx.x; i < count; i += blockDim.x) {
            const Key k = array_sort_key(in[first + i], descending);
            keys[first + i] = k;
            order[first + i] = (unsigned int)(first + i - base);
            any |= k, all &= k;
        }
    }
    for (unsigned int d = 16; d > 0; d /= 2) {
        any |= __shfl_xor_sync(0xffffffffu, any, d);
        all &= __shfl_xor_sync(0xffffffffu, all, d);
    }
    if (threadIdx.x % 32 == 0) {
        atomicOr(bits, any);
        atomicAnd(bits + 1, all);
    }
}
