// Products of matrices of bytes with sums of int32, which are exact: by tensor cores where there are some, else by the
// same sums in the lanes.
#pragma once

#define FULL 0xffffffffu

#if !(__CUDA_ARCH__ >= 800) && !defined(EMULATED_MMA)
// What a lane has of d = c + a b, where a has 16 rows and b has 8 columns: lane 4 g + t has bytes 4 t.. of rows g and
// g + 8 (a0, a1), and of column g (b).
static __device__ void mma_by_lanes(int *d, unsigned a0, unsigned a1, unsigned b) {
  const unsigned lane = threadIdx.x % 32, row = lane & ~3u, column = lane % 4 * 8;
  for (unsigned k = 0; k < 4; k++) {
    const unsigned low = __shfl_sync(FULL, a0, row + k), high = __shfl_sync(FULL, a1, row + k);
    const unsigned even = __shfl_sync(FULL, b, column + k), odd = __shfl_sync(FULL, b, column + 4 + k);
    d[0] = __dp4a((int)low, (int)even, d[0]);
    d[1] = __dp4a((int)low, (int)odd, d[1]);
    d[2] = __dp4a((int)high, (int)even, d[2]);
    d[3] = __dp4a((int)high, (int)odd, d[3]);
  }
}
#endif

// d = c + a b with 16 products a sum: of lane 4 g + t d is of rows g (d[0], d[1]) and g + 8, and columns 2 t and 2 t +
// 1.
__device__ __forceinline__ void mma16(int *d, const int *c, unsigned a0, unsigned a1, unsigned b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#elif defined(EMULATED_MMA)
  emulated_mma(d, c, a0, a1, 0, 0, b, 0);
#else
  for (int i = 0; i < 4; i++) d[i] = c[i];
  mma_by_lanes(d, a0, a1, b);
#endif
}

// The same with 32 products: 16 of a0, a1 and b0, and 16 of a2, a3 and b1.
__device__ __forceinline__ void mma32(int *d, const int *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#elif defined(EMULATED_MMA)
  emulated_mma(d, c, a0, a1, a2, a3, b0, b1);
#else
  for (int i = 0; i < 4; i++) d[i] = c[i];
  mma_by_lanes(d, a0, a1, b0);
  mma_by_lanes(d, a2, a3, b1);
#endif
}
