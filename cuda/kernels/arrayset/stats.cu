// array_stats_*: for each span of an array, the least and the largest key of its elements and two sums, which the host
// merges: all of them are the same in any order. A span is {first element, elements}; result s has four words:
// least key, largest key, and for integers the sums of the low and of the high halves of the elements, each modulo
// 2^64; for floats the number of NaN, which have no key, and 0. Without a key the words are all ones and 0.
// Blocks are whole warps.
extern "C" __global__ void __launch_bounds__(256)
NAME(const Element *in, const unsigned long long *spans, unsigned int n, unsigned long long *out)
{
    __shared__ unsigned long long part[4][8];
    const unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const Element *at = in + spans[2 * s];
        const unsigned long long count = spans[2 * s + 1];
        unsigned long long least = ~0ull, most = 0, low = 0, high = 0;
        for (unsigned long long i = threadIdx.x; i < count; i += blockDim.x) {
            const Element v = at[i];
#ifdef FLOATS
            if (v != v) {
                low++;
                continue;
            }
#else
            low += (unsigned int)v;
#ifdef SIGNED
            high += (unsigned long long)((long long)v >> 32);
#else
            high += (unsigned long long)v >> 32;
#endif
#endif
            const unsigned long long k = array_bits_key(v);
            least = k < least ? k : least;
            most = k > most ? k : most;
        }
        for (unsigned int d = 16; d > 0; d /= 2) {
            const unsigned long long l = __shfl_xor_sync(0xffffffffu, least, d);
            const unsigned long long m = __shfl_xor_sync(0xffffffffu, most, d);
            low += __shfl_xor_sync(0xffffffffu, low, d);
            high += __shfl_xor_sync(0xffffffffu, high, d);
            least = l < least ? l : least;
            most = m > most ? m : most;
        }
        if (lane == 0) {
            part[0][warp] = least, part[1][warp] = most;
            part[2][warp] = low, part[3][warp] = high;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (unsigned int w = 1; w < warps; w++) {
                least = part[0][w] < least ? part[0][w] : least;
                most = part[1][w] > most ? part[1][w] : most;
                low += part[2][w], high += part[3][w];
            }
            out[4 * s] = least, out[4 * s + 1] = most;
            out[4 * s + 2] = low, out[4 * s + 3] = high;
        }
        __syncthreads();
    }
}
