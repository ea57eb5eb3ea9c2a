// array_starts: replaces each of n counts by the sum of the counts before it, which is less than 2^32. n is a
// multiple of 4. The first block does all of it, in whole warps.
extern "C" __global__ void __launch_bounds__(1024) NAME(unsigned int *counts, unsigned int n)
{
    __shared__ unsigned int warps[32], carry;
    if (blockIdx.x > 0)
        return;
    uint4 *quads = reinterpret_cast<uint4 *>(counts);
    const unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
        carry = 0;
    __syncthreads();
    for (unsigned int first = 0; first < n / 4; first += blockDim.x) {
        const unsigned int i = first + threadIdx.x;
        uint4 v = i < n / 4 ? quads[i] : make_uint4(0, 0, 0, 0);
        const unsigned int own = v.x + v.y + v.z + v.w;
        unsigned int sum = own; // of the lanes up to this one
        for (unsigned int d = 1; d < 32; d *= 2) {
            const unsigned int below = __shfl_sync(0xffffffffu, sum, lane >= d ? lane - d : lane);
            if (lane >= d)
                sum += below;
        }
        if (lane == 31)
            warps[warp] = sum;
        __syncthreads();
        unsigned int before = carry + sum - own;
        for (unsigned int w = 0; w < warp; w++)
            before += warps[w];
        __syncthreads(); // all have read the carry
        if (threadIdx.x == blockDim.x - 1)
            carry = before + own;
        if (i < n / 4) {
            const uint4 c = v;
            v.x = before, v.y = v.x + c.x, v.z = v.y + c.y, v.w = v.z + c.z;
            quads[i] = v;
        }
        __syncthreads();
    }
}
