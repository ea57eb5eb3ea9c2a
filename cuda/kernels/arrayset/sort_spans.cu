// array_sort_spans_*: sorts the keys of each span with their places, in place: a bitonic sort in shared memory, one
// block for a span. A span is {first key, keys} of at most 2048 keys. Equal keys come in the order of their places, so
// the sort is stable. Any launch shape.
extern "C" __global__ void __launch_bounds__(1024)
NAME(Key *keys, unsigned int *order, const unsigned long long *spans, unsigned int n)
{
    __shared__ Key key[2048];
    __shared__ unsigned int place[2048];
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const unsigned long long first = spans[2ull * s];
        const unsigned int count = (unsigned int)spans[2ull * s + 1];
        unsigned int size = 1;
        while (size < count)
            size *= 2;
        for (unsigned int i = threadIdx.x; i < size; i += blockDim.x) {
            key[i] = i < count ? keys[first + i] : ~(Key)0;
            place[i] = i < count ? order[first + i] : ~0u; // behind all others
        }
        for (unsigned int run = 2; run <= size; run *= 2)
            for (unsigned int step = run / 2; step > 0; step /= 2) {
                __syncthreads();
                for (unsigned int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                    const unsigned int a = 2 * i - (i & (step - 1)), b = a + step;
                    const bool more = key[a] > key[b] || (key[a] == key[b] && place[a] > place[b]);
                    if (more == ((a & run) == 0)) {
                        const Key k = key[a];
                        const unsigned int p = place[a];
                        key[a] = key[b], place[a] = place[b];
                        key[b] = k, place[b] = p;
                    }
                }
            }
        __syncthreads();
        for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) {
            keys[first + i] = key[i];
            order[first + i] = place[i];
        }
        __syncthreads();
    }
}
