#pragma once
// Matrix products without a library: c = alpha*a*b + beta*c, rows one after the other, sums in fp32 in the order of k.
//
// With 256 threads a block, a block makes a tile of 128 x 128: a thread has 8 x 8 sums in registers, and slices of 8
// columns of a and 8 rows of b go through shared memory while the next ones are on their way. A smaller block makes one
// element a thread; there are no larger ones, because of the registers. Element (i, j) of a stands at a[i * a_row + j *
// a_col], so a transpose is another pair of steps.

__device__ __forceinline__ float gemm_get(const float *p) { return *p; }
__device__ __forceinline__ float gemm_get(const unsigned short *p) { return __uint_as_float((unsigned int)*p << 16); }
__device__ __forceinline__ void gemm_put(float *p, float v) { *p = v; }

__device__ __forceinline__ void gemm_put(unsigned short *p, float v)
{
    const unsigned int bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        *p = (unsigned short)(bits >> 16 | 0x40u); // NaN, which rounding could turn into an infinity
    else
        *p = (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <typename O>
__device__ __forceinline__ void gemm_end(O *c, float sum, float alpha, float beta)
{
    sum *= alpha;
    if (beta != 0.0f) // else c may hold anything
        sum += beta * gemm_get(c);
    gemm_put(c, sum);
}

template <typename E, typename O>
__device__ __forceinline__ void gemm(const E *a, const E *b, O *c, unsigned int m, unsigned int n, unsigned int k,
                                     unsigned long long a_row, unsigned long long a_col, unsigned long long b_row,
                                     unsigned long long b_col, unsigned long long c_row, float alpha, float beta)
{
    const unsigned int T = 128, S = 8, t = threadIdx.x;
    if (blockDim.x != 256) {
        const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x, all = (unsigned long long)m * n;
        for (unsigned long long e = (unsigned long long)blockIdx.x * blockDim.x + t; e < all; e += step) {
            const unsigned long long i = e / n, j = e % n;
            float sum = 0.0f;
            for (unsigned int l = 0; l < k; l++)
                sum = fmaf(gemm_get(a + i * a_row + l * a_col), gemm_get(b + l * b_row + j * b_col), sum);
            gemm_end(c + i * c_row + j, sum, alpha, beta);
        }
        return;
    }
    __shared__ float as[2][S][T + 4], bs[2][S][T + 4]; // four more: no two rows of a column in one bank
    const unsigned int across = (n + T - 1) / T, down = (m + T - 1) / T;
    const unsigned long long tiles = (unsigned long long)across * down;
    const unsigned int tx = t % 16, ty = t / 16;
    for (unsigned long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned int i0 = (unsigned int)(tile / across) * T, j0 = (unsigned int)(tile % across) * T;
        float acc[8][8];
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[i][j] = 0.0f;
        float ra[4], rb[4];
        // The thread's four elements of each slice, neighbours where memory has them side by side.
#define GEMM_A(q, i, l) const unsigned int i = a_col == 1 ? t / 2 : (t + 256 * q) % T, \
        l = a_col == 1 ? t % 2 * 4 + q : (t + 256 * q) / T
#define GEMM_B(q, l, j) const unsigned int j = b_col == 1 ? (t + 256 * q) % T : t / 2, \
        l = b_col == 1 ? (t + 256 * q) / T : t % 2 * 4 + q
#define GEMM_LOAD(l0)                                                                                  \
    _Pragma("unroll") for (unsigned int q = 0; q < 4; q++)                                             \
    {                                                                                                  \
        GEMM_A(q, i, la);                                                                              \
        GEMM_B(q, lb, j);                                                                              \
        ra[q] = i0 + i < m && l0 + la < k ? gemm_get(a + (i0 + i) * a_row + (l0 + la) * a_col) : 0.0f; \
        rb[q] = j0 + j < n && l0 + lb < k ? gemm_get(b + (l0 + lb) * b_row + (j0 + j) * b_col) : 0.0f; \
    }
#define GEMM_STORE(s)                                      \
    _Pragma("unroll") for (unsigned int q = 0; q < 4; q++) \
    {                                                      \
        GEMM_A(q, i, la);                                  \
        GEMM_B(q, lb, j);                                  \
        as[s][la][i] = ra[q];                              \
        bs[s][lb][j] = rb[q];                              \
    }
        __syncthreads(); // the tile before is read out
        GEMM_LOAD(0u)
        GEMM_STORE(0)
        __syncthreads();
        int s = 0;
        for (unsigned int l0 = 0; l0 < k; l0 += S) {
            const bool more = l0 + S < k;
            if (more) {
                GEMM_LOAD(l0 + S)
            }
#pragma unroll
            for (unsigned int l = 0; l < S; l++) {
                float x[8], y[8];
                *(float4 *)&x[0] = *(const float4 *)&as[s][l][ty * 4];
                *(float4 *)&x[4] = *(const float4 *)&as[s][l][64 + ty * 4];
                *(float4 *)&y[0] = *(const float4 *)&bs[s][l][tx * 4];
                *(float4 *)&y[4] = *(const float4 *)&bs[s][l][64 + tx * 4];
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
            }
            if (more) {
                GEMM_STORE(s ^ 1)
                __syncthreads();
                s ^= 1;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const unsigned int row = i0 + (i / 4) * 64 + ty * 4 + i % 4, col = j0 + (j / 4) * 64 + tx * 4 + j % 4;
                if (row < m && col < n)
                    gemm_end(c + row * c_row + col, acc[i][j], alpha, beta);
            }
    }
}

// The parameters of every product, for factors of E and a result of O, and their names.
#define GEMM_PARAMS(E, O)                                                                                       \
    const E *a, const E *b, O *c, unsigned int m, unsigned int n, unsigned int k, unsigned long long a_row,     \
        unsigned long long a_col, unsigned long long b_row, unsigned long long b_col, unsigned long long c_row, \
                float alpha,                                                                                    \
        float beta
#define GEMM_NAMES a, b, c, m, n, k, a_row, a_col, b_row, b_col, c_row, alpha, beta
