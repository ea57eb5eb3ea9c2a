// array_fold_*: out[i] is the sum of the elements i of the arrays, which have n elements each and begin stride elements
// apart in one array. They are added in their order: floats in double, rounded once at the end, and integers modulo the
// size of an element. out may be the first array. Any launch shape.
extern "C" __global__ void __launch_bounds__(1024)
NAME(const Element *in, unsigned long long n, unsigned long long stride, unsigned int arrays, Element *out)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
#ifdef FLOATS
        double sum = (double)in[i];
        for (unsigned int a = 1; a < arrays; a++)
            sum += (double)in[a * stride + i];
        const Element v = (Element)sum;
        ArrayBits b;
        b.v = v;
        if (v != v)
            b.k = sizeof(Key) == 4 ? (Key)0x7fc00000u : (Key)0x7ff8000000000001ull;
        out[i] = b.v;
#else
        Key sum = (Key)in[i];
        for (unsigned int a = 1; a < arrays; a++)
            sum += (Key)in[a * stride + i];
        out[i] = (Element)sum;
#endif
    }
}
