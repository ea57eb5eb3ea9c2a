// array_gather_*: out[i] is the element of its array that order[i] names. A span has four words: first element,
// elements, the element that its array begins with, and one that is not read. Any launch shape.
extern "C" __global__ void __launch_bounds__(1024)
NAME(const Key *in, const unsigned int *order, const unsigned long long *spans, unsigned int n, Key *out)
{
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const unsigned long long first = spans[4ull * s], end = first + spans[4ull * s + 1];
        const Key *from = in + spans[4ull * s + 2];
        for (unsigned long long i = first + threadIdx.x; i < end; i += blockDim.x)
            out[i] = from[order[i]];
    }
}
