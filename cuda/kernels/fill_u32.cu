// fill_u32 sets n words of out to value. Any launch shape; a grid of a few blocks a multiprocessor reaches the memory's
// rate, because each thread strides over the whole range.
extern "C" __global__ void fill_u32(unsigned int *out, unsigned long long n, unsigned int value)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if ((reinterpret_cast<unsigned long long>(out) & 15) == 0) {
        uint4 *wide = reinterpret_cast<uint4 *>(out);
        const uint4 v = make_uint4(value, value, value, value);
        for (unsigned long long q = i; q < n / 4; q += step)
            wide[q] = v;
        i += n / 4 * 4;
    }
    for (; i < n; i += step)
        out[i] = value;
}
