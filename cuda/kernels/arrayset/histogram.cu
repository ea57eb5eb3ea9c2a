// array_histogram_*: adds the elements of each span to the counts of its bins. A span has eight words: first element,
// elements, less than 2^32; least and largest value and bins per unit as doubles; bins; and where in counts its bins
// and in outside its three counts begin: elements below, above, and NaN. Several spans may add to the same bins.
// The host has set the counts to zero. Few bins are counted in shared memory. Any launch shape.
#define ARRAY_BINS 4096

extern "C" __global__ void __launch_bounds__(1024)
NAME(const Element *in, const unsigned long long *spans, unsigned int n, unsigned long long *counts,
     unsigned long long *outside)
{
    __shared__ unsigned int local[ARRAY_BINS], out[3];
    for (unsigned int s = blockIdx.x; s < n; s += gridDim.x) {
        const unsigned long long *span = spans + 8ull * s;
        const Element *at = in + span[0];
        const unsigned int count = (unsigned int)span[1], bins = (unsigned int)span[5];
        const double least = array_double(span[2]), most = array_double(span[3]), scale = array_double(span[4]);
        unsigned long long *to = counts + span[6];
        const bool few = bins <= ARRAY_BINS;
        if (few)
            for (unsigned int b = threadIdx.x; b < bins; b += blockDim.x)
                local[b] = 0;
        for (unsigned int k = threadIdx.x; k < 3; k += blockDim.x)
            out[k] = 0;
        __syncthreads();
        for (unsigned long long i = threadIdx.x; i < count; i += blockDim.x) {
            const double x = (double)at[i];
            if (x >= least && x <= most) {
                unsigned int b = (unsigned int)((x - least) * scale);
                b = b < bins ? b : bins - 1;
                if (few)
                    atomicAdd(local + b, 1u);
                else
                    atomicAdd(to + b, 1ull);
            } else {
                atomicAdd(out + (x < least ? 0 : x > most ? 1 : 2), 1u);
            }
        }
        __syncthreads();
        if (few)
            for (unsigned int b = threadIdx.x; b < bins; b += blockDim.x)
                if (local[b] > 0)
                    atomicAdd(to + b, (unsigned long long)local[b]);
        for (unsigned int k = threadIdx.x; k < 3; k += blockDim.x)
            if (out[k] > 0)
                atomicAdd(outside + span[7] + k, (unsigned long long)out[k]);
        __syncthreads();
    }
}
