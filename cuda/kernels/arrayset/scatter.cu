// array_scatter_*: moves keys and places to the order of one digit; keys of one digit keep their order. starts is what
// array_starts makes of the counts of array_digits, with the same tiles. A block reads a part of its tile, in which
// each warp has 256 keys. The rank of a key among the keys of its digit is their number in the warps before, in the
// rows of the warp before, and in the lanes before. Blocks are whole warps.
#define ARRAY_ROWS 8

extern "C" __global__ void __launch_bounds__(256)
NAME(const Key *keys, const unsigned int *order, unsigned long long n, unsigned int shift, unsigned long long share,
     unsigned int tiles, const unsigned int *starts, Key *keys_out, unsigned int *order_out)
{
    __shared__ unsigned int counts[8][256], at[256];
    const unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const unsigned int lower = (1u << lane) - 1;
    for (unsigned int t = blockIdx.x; t < tiles; t += gridDim.x) {
        for (unsigned int d = threadIdx.x; d < 256; d += blockDim.x)
            at[d] = starts[d * tiles + t];
        const unsigned long long first = t * share, end = first + share < n ? first + share : n;
        for (unsigned long long part = first; part < end; part += warps * 32 * ARRAY_ROWS) {
            for (unsigned int d = lane; d < 256; d += 32)
                counts[warp][d] = 0;
            __syncwarp(0xffffffffu);
            const unsigned long long mine = part + warp * 32 * ARRAY_ROWS + lane;
            Key key[ARRAY_ROWS];
            unsigned int rank[ARRAY_ROWS];
#pragma unroll
            for (unsigned int r = 0; r < ARRAY_ROWS; r++)
                key[r] = mine + 32 * r < end ? keys[mine + 32 * r] : 0;
#pragma unroll
            for (unsigned int r = 0; r < ARRAY_ROWS; r++) {
                const bool valid = mine + 32 * r < end;
                const unsigned int d = valid ? (unsigned int)(key[r] >> shift & 255) : 256;
                const unsigned int peers = __match_any_sync(0xffffffffu, d);
                const unsigned int before = valid ? counts[warp][d] : 0;
                __syncwarp(0xffffffffu);
                rank[r] = before + __popc(peers & lower);
                if (valid && (peers & lower) == 0)
                    counts[warp][d] = before + __popc(peers);
                __syncwarp(0xffffffffu);
            }
            __syncthreads();
            for (unsigned int d = threadIdx.x; d < 256; d += blockDim.x) {
                unsigned int running = at[d];
                for (unsigned int w = 0; w < warps; w++) {
                    const unsigned int c = counts[w][d];
                    counts[w][d] = running;
                    running += c;
                }
                at[d] = running;
            }
            __syncthreads();
#pragma unroll
            for (unsigned int r = 0; r < ARRAY_ROWS; r++)
                if (mine + 32 * r < end) {
                    const unsigned int to = counts[warp][key[r] >> shift & 255] + rank[r];
                    keys_out[to] = key[r];
                    order_out[to] = order[mine + 32 * r];
                }
            __syncthreads();
        }
        __syncthreads();
    }
}
