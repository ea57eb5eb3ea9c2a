// vector_add_f32 is c[i] = a[i] + b[i] for n floats. Any launch shape.
extern "C" __global__ void vector_add_f32(const float *a, const float *b, float *c, unsigned long long n)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        c[i] = a[i] + b[i];
}
