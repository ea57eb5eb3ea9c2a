// Sums of rows. The operands of a run of rows are columns in shared memory. Each column begins at a
// multiple of 16 bytes.

// x_tile adds the products of four columns of a and four of b, row by row, to 16 sums. The columns of a
// are x floats from each other, the columns of b g floats, so that threads side by side read columns
// side by side: their banks differ.
__device__ __forceinline__ void x_tile(const float *a, unsigned x, const float *b, unsigned g, unsigned rows,
                                       float *sums) {
  unsigned r = 0;
  for (; r + 4 <= rows; r += 4) {
    Four<float> u[4], v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u[i] = *(const Four<float> *)(a + i * x + r);
      v[i] = *(const Four<float> *)(b + i * g + r);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[4 * i + j] = __fmaf_rn(u[i].v[k], v[j].v[k], sums[4 * i + j]);
  }
  for (; r < rows; r++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sums[4 * i + j] = __fmaf_rn(a[i * x + r], b[j * g + r], sums[4 * i + j]);
}

// x_column adds a column to a sum, row by row.
__device__ __forceinline__ float x_column(const float *v, unsigned rows, float sum) {
  unsigned r = 0;
  for (; r + 4 <= rows; r += 4) {
    const Four<float> x = *(const Four<float> *)(v + r);
#pragma unroll
    for (int k = 0; k < 4; k++) sum = x_add(sum, x.v[k]);
  }
  for (; r < rows; r++) sum = x_add(sum, v[r]);
  return sum;
}

// x_runs adds up the sums of runs, as far as this block ends the last of 128. The block has added up done
// runs of runs, from number run on, whose sums are in partial, a row of n for each run; the sums of
// later levels are behind them. All threads call it. It returns where the sums of all runs are, or null
// if another block adds them.
__device__ __forceinline__ const volatile float *x_runs(float *partial, unsigned *counters, u64 runs, u64 run,
                                                        unsigned done, unsigned n, bool *last) {
  while (runs > 1) {
    __threadfence();
    __syncthreads();
    const u64 group = run / 128u, groups = (runs + 127u) / 128u;
    const unsigned size = group + 1 < groups ? 128u : (unsigned)(runs - group * 128u);
    if (threadIdx.x == 0) *last = atomicAdd(counters + group, done) + done == size;
    __syncthreads();
    if (!*last) return 0;
    __threadfence();
    float *const next = partial + runs * n;
    for (unsigned e = threadIdx.x; e < n; e += blockDim.x) {
      const volatile float *const from = partial + group * 128u * n + e;
      float sum = 0.0f;
#pragma unroll 8
      for (unsigned i = 0; i < size; i++) sum = x_add(sum, from[(u64)i * n]);
      next[group * n + e] = sum;
    }
    counters += groups;
    partial = next;
    runs = groups;
    run = group;
    done = 1;
  }
  __syncthreads();
  return partial;
}
