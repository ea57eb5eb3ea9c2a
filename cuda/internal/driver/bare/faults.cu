// The kernels of the fault laboratory, one for each way to break a context, and two that are sound. The PTX beside this
// file is made of it: nvcc --ptx -arch=compute_70 -o faults.ptx faults.cu
#include <assert.h>

extern "C" __global__ void illegal(unsigned int *p, unsigned long long n)
{
    *(volatile unsigned int *)(0x10000000ull + 4 * n) = 1;
}

extern "C" __global__ void misaligned(unsigned int *p, unsigned long long n)
{
    *(volatile unsigned long long *)((char *)p + 1) = n;
}

extern "C" __global__ void trapped(unsigned int *p, unsigned long long n) { asm volatile("trap;"); }

extern "C" __global__ void asserted(unsigned int *p, unsigned long long n) { assert(n == 12345); }

// hang runs for n nanoseconds.
extern "C" __global__ void hang(unsigned int *p, unsigned long long n)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < n);
    p[0] = 1;
}

extern "C" __global__ void sound(unsigned int *p, unsigned long long n) {
    p[threadIdx.x] = threadIdx.x + (unsigned int)n;
}
