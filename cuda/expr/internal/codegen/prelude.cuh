// Operations of generated kernels, to the bits of elementary.go. It includes no header.
typedef unsigned long long u64;
#ifndef X_DYNAMIC
#define X_DYNAMIC(name) extern __shared__ __align__(16) unsigned name[]
#endif
template <class T> struct alignas(4 * sizeof(T)) Four { T v[4]; };

__device__ __forceinline__ float x_bits(unsigned v) { return __uint_as_float(v); }
__device__ __forceinline__ unsigned x_word(float v) { return __float_as_uint(v); }
// x_pure gives every NaN the same bits.
__device__ __forceinline__ float x_pure(float v) { return v == v ? v : x_bits(0x7fc00000u); }
__device__ __forceinline__ float x_of_bf16(unsigned short v) { return x_bits((unsigned)v << 16); }
__device__ __forceinline__ unsigned short x_to_bf16(float f) {
  const unsigned v = x_word(f);
  if (f != f) return (unsigned short)0x7fc0;
  return (unsigned short)((v + 0x7fffu + (v >> 16 & 1u)) >> 16);
}
__device__ __forceinline__ float x_round_bf16(float v) { return x_of_bf16(x_to_bf16(v)); }
__device__ __forceinline__ float x_min(float a, float b) { return a != a || !(b < a || b != b) ? a : b; }
__device__ __forceinline__ float x_max(float a, float b) { return a != a || !(b > a || b != b) ? a : b; }
__device__ __forceinline__ int x_min(int a, int b) { return b < a ? b : a; }
__device__ __forceinline__ int x_max(int a, int b) { return b > a ? b : a; }
__device__ __forceinline__ unsigned x_min(unsigned a, unsigned b) { return b < a ? b : a; }
__device__ __forceinline__ unsigned x_max(unsigned a, unsigned b) { return b > a ? b : a; }
__device__ __forceinline__ float x_add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ int x_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ __forceinline__ unsigned x_add(unsigned a, unsigned b) { return a + b; }
__device__ __forceinline__ int x_div(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (unsigned)a) : a / b; }
__device__ __forceinline__ unsigned x_div(unsigned a, unsigned b) { return b == 0 ? 0 : a / b; }
__device__ __forceinline__ int x_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
__device__ __forceinline__ unsigned x_rem(unsigned a, unsigned b) { return b == 0 ? 0 : a % b; }
__device__ __forceinline__ unsigned x_shl(unsigned a, unsigned b) { return b > 31u ? 0u : a << b; }
__device__ __forceinline__ unsigned x_shr(unsigned a, unsigned b) { return b > 31u ? 0u : a >> b; }
__device__ __forceinline__ int x_shr(int a, int b) { return a >> ((unsigned)b > 31u ? 31 : b); }
__device__ __forceinline__ int x_int(float v) {
  if (v != v) return 0;
  if (v >= 2147483648.0f) return 2147483647;
  if (v <= -2147483648.0f) return (int)0x80000000u;
  return (int)v;
}
__device__ __forceinline__ unsigned x_unsigned(float v) {
  if (!(v > 0.0f)) return 0u;
  if (v >= 4294967296.0f) return 0xffffffffu;
  return (unsigned)v;
}
__device__ __forceinline__ unsigned x_byte(float v) { return !(v > 0.0f) ? 0u : v >= 255.0f ? 255u : (unsigned)v; }
__device__ __forceinline__ float x_floor(float v) {
  if (!(v < 8388608.0f && v > -8388608.0f)) return v;
  const float t = (float)(int)v; // toward zero
  const float f = t > v ? __fadd_rn(t, -1.0f) : t;
  return f == 0.0f ? x_bits(x_word(v) & 0x80000000u) : f;
}
__device__ __forceinline__ float x_abs(float v) { return x_bits(x_word(v) & 0x7fffffffu); }
__device__ __forceinline__ float x_neg(float v) { return x_bits(x_word(v) ^ 0x80000000u); }

__device__ __forceinline__ float x_exp(float x) {
  // Without branches: numbers beyond an end of the range have the result of the end.
  const float c = x < 89.0f ? (x > -104.0f ? x : -104.0f) : 89.0f;
  const float k = __fadd_rn(__fmaf_rn(c, 1.44269502f, 12582912.0f), -12582912.0f);
  const float r = __fmaf_rn(k, 2.12194440e-4f, __fmaf_rn(k, -0.693359375f, c));
  float y = __fmaf_rn(1.9875691500e-4f, r, 1.3981999507e-3f);
  y = __fmaf_rn(y, r, 8.3334519073e-3f);
  y = __fmaf_rn(y, r, 4.1665795894e-2f);
  y = __fmaf_rn(y, r, 1.6666665459e-1f);
  y = __fmaf_rn(y, r, 5.0000001201e-1f);
  y = __fadd_rn(__fmaf_rn(y, __fmul_rn(r, r), r), 1.0f);
  const int n = (int)k, h = n >> 1;
  y = __fmul_rn(__fmul_rn(y, x_bits((unsigned)(h + 127) << 23)), x_bits((unsigned)(n - h + 127) << 23));
  return x == x ? y : x;
}

__device__ __forceinline__ float x_log(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? x_bits(0xff800000u) : x_bits(0x7fc00000u);
  unsigned v = x_word(x);
  if (v >= 0x7f800000u) return x;
  int e = 0;
  if (v < 0x00800000u) { // subnormal
    v = x_word(__fmul_rn(x, 8388608.0f));
    e = -23;
  }
  e += (int)(v >> 23) - 126;
  float m = x_bits((v & 0x7fffffu) | 0x3f000000u); // in [1/2, 1)
  if (m < 0.707106781f) {
    e--;
    m = __fadd_rn(__fadd_rn(m, m), -1.0f);
  } else {
    m = __fadd_rn(m, -1.0f);
  }
  const float z = __fmul_rn(m, m), f = (float)e;
  float y = __fmaf_rn(7.0376836292e-2f, m, -1.1514610310e-1f);
  y = __fmaf_rn(y, m, 1.1676998740e-1f);
  y = __fmaf_rn(y, m, -1.2420140846e-1f);
  y = __fmaf_rn(y, m, 1.4249322787e-1f);
  y = __fmaf_rn(y, m, -1.6668057665e-1f);
  y = __fmaf_rn(y, m, 2.0000714765e-1f);
  y = __fmaf_rn(y, m, -2.4999993993e-1f);
  y = __fmaf_rn(y, m, 3.3333331174e-1f);
  y = __fmul_rn(__fmul_rn(y, m), z);
  y = __fmaf_rn(f, -2.12194440e-4f, y);
  y = __fmaf_rn(z, -0.5f, y);
  return __fmaf_rn(f, 0.693359375f, __fadd_rn(m, y));
}

__device__ __forceinline__ float x_tanh(float x) {
  const float a = x_abs(x);
  if (a >= 0.625f) {
    if (a > 9.1f) return x > 0.0f ? 1.0f : -1.0f;
    const float r = __fadd_rn(1.0f, -__fdiv_rn(2.0f, __fadd_rn(x_exp(__fadd_rn(a, a)), 1.0f)));
    return x > 0.0f ? r : -r;
  }
  const float z = __fmul_rn(x, x);
  float y = __fmaf_rn(-5.70498872745e-3f, z, 2.06390887954e-2f);
  y = __fmaf_rn(y, z, -5.37397155531e-2f);
  y = __fmaf_rn(y, z, 1.33314422036e-1f);
  y = __fmaf_rn(y, z, -3.33332819422e-1f);
  return __fmaf_rn(__fmul_rn(y, z), x, x);
}

__device__ __forceinline__ unsigned x_philox(u64 row, unsigned seed, unsigned stream) {
  unsigned c0 = (unsigned)row, c1 = (unsigned)(row >> 32), c2 = stream, c3 = 0, k0 = seed, k1 = 0;
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const u64 p = (u64)0xD2511F53u * c0, q = (u64)0xCD9E8D57u * c2;
    c0 = (unsigned)(q >> 32) ^ c1 ^ k0;
    c2 = (unsigned)(p >> 32) ^ c3 ^ k1;
    c1 = (unsigned)q;
    c3 = (unsigned)p;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

// Loads and stores of four elements; the first m exist.
template <class T> __device__ __forceinline__ Four<T> x_load4(const T *p, bool vec, int m) {
  if (vec && m >= 4) return *(const Four<T> *)p;
  Four<T> f;
#pragma unroll
  for (int k = 0; k < 4; k++) f.v[k] = k < m ? p[k] : (T)0;
  return f;
}
template <class T> __device__ __forceinline__ void x_store4(T *p, const Four<T> &f, bool vec, int m) {
  if (vec && m >= 4) {
    *(Four<T> *)p = f;
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (k < m) p[k] = f.v[k];
}
// x_once4 and x_put4 are loads and stores of aligned vectors that are used once: caches drop them first.
template <class T> __device__ __forceinline__ Four<T> x_once4(const T *p) {
#ifdef __CUDACC__
  if (sizeof(T) == 4) {
    union {
      uint4 q;
      Four<T> f;
    } u;
    u.q = __ldcs((const uint4 *)p);
    return u.f;
  }
#endif
  return *(const Four<T> *)p;
}
template <class T> __device__ __forceinline__ void x_put4(T *p, const Four<T> &f) {
#ifdef __CUDACC__
  if (sizeof(T) == 4) {
    union {
      uint4 q;
      Four<T> f;
    } u;
    u.f = f;
    __stcs((uint4 *)p, u.q);
    return;
  }
#endif
  *(Four<T> *)p = f;
}
__device__ __forceinline__ bool x_aligned(const void *p, unsigned bytes) { return ((u64)p & (bytes - 1)) == 0; }
__device__ __forceinline__ int x_rest(unsigned n, unsigned e) { return e >= n ? 0 : n - e < 4 ? (int)(n - e) : 4; }
__device__ __forceinline__ int x_left(u64 n, u64 e) { return e >= n ? 0 : n - e < 4 ? (int)(n - e) : 4; }

struct x_sums {
  template <class T> static __device__ __forceinline__ T fold(T a, T b) { return x_add(a, b); }
};
struct x_mins {
  template <class T> static __device__ __forceinline__ T fold(T a, T b) { return x_min(a, b); }
};
struct x_maxs {
  template <class T> static __device__ __forceinline__ T fold(T a, T b) { return x_max(a, b); }
};
// x_lanes folds the values of `lanes` neighbouring lanes, d = lanes/2 ... 1; the first lane has the result.
template <class F, class T> __device__ __forceinline__ T x_lanes(T q, int lanes) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    if (d < lanes) q = F::fold(q, __shfl_down_sync(0xffffffffu, q, d));
  return q;
}
template <class F, class T> __device__ __forceinline__ T x_four(const T *c) {
  return F::fold(F::fold(c[0], c[1]), F::fold(c[2], c[3]));
}
// x_tiles folds the results of 16 tiles in shared memory. Every warp may call it; lane 0 has the result.
template <class F, class T> __device__ __forceinline__ T x_tiles(const T *part, T none) {
  const unsigned lane = threadIdx.x & 31u;
  return x_lanes<F>(lane < 16u ? part[lane] : none, 16);
}
// x_merge folds the results of m super tiles by one block of 256 threads, into p[0]; all threads get it.
template <class F, class T> __device__ T x_merge(T *p, u64 m, T none, T *part) {
  const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
  while (m > 1) {
    const u64 supers = (m + 16383) / 16384;
    for (u64 s = 0; s < supers; s++) {
      for (unsigned t = warp; t < 16u; t += 8u) {
        T c[4] = {none, none, none, none};
#pragma unroll
        for (int r = 0; r < 8; r++) {
#pragma unroll
          for (int k = 0; k < 4; k++) {
            const u64 e = s * 16384 + t * 1024u + r * 128 + lane * 4u + k;
            if (e < m) c[k] = F::fold(c[k], __ldcg(p + e));
          }
        }
        const T q = x_lanes<F>(x_four<F>(c), 32);
        if (lane == 0) part[t] = q;
      }
      __syncthreads();
      const T q = x_tiles<F>(part, none);
      __syncthreads();
      if (threadIdx.x == 0) p[s] = q;
    }
    __threadfence();
    __syncthreads();
    m = supers;
  }
  const T all = __ldcg(p);
  __syncthreads();
  return all;
}
// Sums over tiles have a fixed order, so that blocks need not wait for each other in a row. Level 0 has a state for
// each tile, and each state of a level above is the sum of 32 states of the level below, which 32 lanes add by
// distances of 1, 2, 4, 8 and 16. The levels lie behind each other in memory. A state is 0 until it is known, and then
// has bit 63 and the value.
__device__ __forceinline__ u64 x_add(u64 a, u64 b) { return a + b; }
__device__ __forceinline__ u64 x_raw(u64 v) { return v; }
__device__ __forceinline__ u64 x_raw(unsigned v) { return v; }
__device__ __forceinline__ u64 x_raw(int v) { return (unsigned)v; }
__device__ __forceinline__ u64 x_raw(float v) { return x_word(v); }
__device__ __forceinline__ void x_get(u64 s, u64 &v) { v = s & ~(1ull << 63); }
__device__ __forceinline__ void x_get(u64 s, unsigned &v) { v = (unsigned)s; }
__device__ __forceinline__ void x_get(u64 s, int &v) { v = (int)(unsigned)s; }
__device__ __forceinline__ void x_get(u64 s, float &v) { v = x_bits((unsigned)s); }
// x_publish makes a state known. One thread calls it.
template <class T> __device__ __forceinline__ void x_publish(volatile u64 *state, T v) {
  *state = 1ull << 63 | x_raw(v);
}
template <class T> __device__ __forceinline__ T x_await(volatile u64 *state, u64 seen) {
  while (!(seen >> 63)) {
    __nanosleep(20);
    seen = *state;
  }
  T v;
  x_get(seen, v);
  return v;
}
// x_steps adds to each lane the lanes before it.
template <class T> __device__ __forceinline__ T x_steps(T v) {
  const unsigned lane = threadIdx.x & 31u;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const T t = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= (unsigned)d) v = x_add(t, v);
  }
  return v;
}
// x_upward publishes the sums of the groups that end with a tile. A warp calls it after the tile is published. It waits
// for earlier tiles of the group only.
template <class T> __device__ __forceinline__ void x_upward(volatile u64 *state, u64 tile, u64 tiles, T own) {
  const unsigned lane = threadIdx.x & 31u;
  for (u64 n = tiles; (tile & 31u) == 31u; tile >>= 5) {
    T v = own;
    if (lane < 31u) v = x_await<T>(state + (tile - 31u + lane), 0);
    __syncwarp();
    own = __shfl_sync(0xffffffffu, x_steps(v), 31);
    state += n;
    n = (n + 31u) >> 5;
    if (lane == 0) x_publish(state + (tile >> 5), own);
  }
}
// x_before returns the sum of all tiles before a tile, for which it waits. A warp calls it.
template <class T> __device__ __forceinline__ T x_before(volatile u64 *state, u64 tile, u64 tiles, T none) {
  const unsigned lane = threadIdx.x & 31u;
  u64 seen[3] = {0, 0, 0}; // the first levels are read at once
  volatile u64 *level = state;
  u64 at = tile, n = tiles;
#pragma unroll
  for (int l = 0; l < 3; l++) {
    if (n > 1 && lane < (at & 31u)) seen[l] = level[at - (at & 31u) + lane];
    level += n;
    n = (n + 31u) >> 5;
    at >>= 5;
  }
  T sum = none;
  level = state, at = tile, n = tiles;
#pragma unroll
  for (int l = 0; l < 6; l++) { // of at most 2^30 tiles
    if (n <= 1) break;
    T v = none;
    if (lane < (at & 31u)) v = x_await<T>(level + (at - (at & 31u) + lane), l < 3 ? seen[l < 3 ? l : 0] : 0);
    __syncwarp();
    sum = x_add(__shfl_sync(0xffffffffu, x_steps(v), 31), sum);
    level += n;
    n = (n + 31u) >> 5;
    at >>= 5;
  }
  return sum;
}
