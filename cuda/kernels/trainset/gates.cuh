// What the kernels of a class share: numbers in the layout of a warp of gru_agents.cuh.
#pragma once

#define PAIRS (PIECE / 2) // words of a piece of numbers of 16 bits
#define TILE (16 * TILES) // agents of a warp
// chunks of 16 gradients of the gates r, z and of a part of n; of 8 units, a chunk has r and z
#define GRADIENT_CHUNKS (HIDDEN == 8 ? 2 : 4 * CHUNKS)

typedef Words<PAIRS> Numbers;

// Two halves of a word + 128 each.
__device__ __forceinline__ unsigned plus128(unsigned p) {
  return ((p & 0x7fff7fffu) + 0x00800080u) ^ (p & 0x80008000u);
}

// The numbers of two values, in the halves of a word; see halves_of.
__device__ __forceinline__ unsigned pair_of(const float *v, float scale) {
  const float one = 12582912.0f;
  return __byte_perm(__float_as_uint(fma32(v[0], scale, one)), __float_as_uint(fma32(v[1], scale, one)), 0x5410);
}

// The number of a value of less than 2^15 of either sign, rounded to even; of NaN 0.
__device__ __forceinline__ int number_of(float v) {
  return v == v ? (int)(short)__float_as_uint(fma32(v, 1.0f, 12582912.0f)) : 0;
}

// Number k of words of two.
__device__ __forceinline__ int half_of(const unsigned *words, int k) {
  return k % 2 ? (int)words[k / 2] >> 16 : (int)(short)words[k / 2];
}

// The units h and the inputs x of the lane's agents by bytes.
__device__ __forceinline__ void bytes_of_step(Bytes (*a)[ALL], const unsigned (*h)[PAIRS], const unsigned (*x)[PAIRS]) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (HIDDEN == 8) a[r][0] = bytes_of(plus128(h[r][0]), plus128(x[r][0]));
#pragma unroll
    for (int c = 0; c < CHUNKS && HIDDEN > 8; c++) {
      a[r][c] = bytes_of(plus128(h[r][2 * c]), plus128(h[r][2 * c + 1]));
      a[r][ALL - CHUNKS + c] = bytes_of(plus128(x[r][2 * c]), plus128(x[r][2 * c + 1]));
    }
  }
}

// The words of gradients of gates r, z and of a part of n of an agent by bytes.
__device__ __forceinline__ void bytes_of_gradients(Bytes *a, const unsigned *r, const unsigned *z, const unsigned *n) {
  if (HIDDEN == 8) {
    a[0] = bytes_of(plus128(r[0]), plus128(z[0])), a[1] = bytes_of(plus128(n[0]), 0x00800080u);
  } else {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      a[c] = bytes_of(plus128(r[2 * c]), plus128(r[2 * c + 1]));
      a[CHUNKS + c] = bytes_of(plus128(z[2 * c]), plus128(z[2 * c + 1]));
      a[2 * CHUNKS + c] = bytes_of(plus128(n[2 * c]), plus128(n[2 * c + 1]));
      a[3 * CHUNKS + c].high = a[3 * CHUNKS + c].low = 0;
    }
  }
}

// The weights of the units (part 0) or of the inputs (part 1) by gate, for products with gradients of gates: of two
// chunks low, low, high, high.
struct Transposed {
  uint4 weights[COLUMNS][GRADIENT_CHUNKS / 2][32];

  __device__ __forceinline__ unsigned number(const unsigned *table, unsigned part, unsigned chunk, unsigned e,
      unsigned t, unsigned column) const {
    const unsigned gate = HIDDEN == 8 ? 2 * chunk + e / 2 : chunk / CHUNKS;
    if (gate > 2) return 0;
    const unsigned unit = t * PIECE + (HIDDEN == 8 ? e % 2 : chunk % CHUNKS * 4 + e);
    return ((const unsigned short *)(table + TABLE_WEIGHTS))[((gate * HIDDEN + unit) * 2 + part) * HIDDEN + column];
  }

  // All threads of a block open it, and wait for each other behind.
  __device__ __forceinline__ void open(const unsigned *table, unsigned part) {
    for (unsigned i = threadIdx.x; i < COLUMNS * GRADIENT_CHUNKS * 32; i += blockDim.x) {
      const unsigned lane = i % 32, chunk = i / 32 % GRADIENT_CHUNKS, j = i / 32 / GRADIENT_CHUNKS;
      const unsigned t = lane % 4, column = lane / 4 / 2 * PIECE + 2 * j + lane / 4 % 2;
      unsigned v[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) v[e] = number(table, part, chunk, e, t, column);
      const Bytes b = bytes_of(plus128(v[0] | v[1] << 16), plus128(v[2] | v[3] << 16));
      unsigned *to = (unsigned *)&weights[j][chunk / 2][lane];
      to[chunk % 2] = b.low, to[2 + chunk % 2] = b.high;
    }
  }

  // Sums of the products with the gradients u and v of two agents: units 2 j and 2 j + 1 of the lane's piece of the
  // first one, then of the second one.
  __device__ __forceinline__ void product(int *sum, const Bytes *u, const Bytes *v, int j) const {
    int middle[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
#pragma unroll
    for (int c = 0; c < GRADIENT_CHUNKS; c += 2) {
      const uint4 w = weights[j][c / 2][threadIdx.x % 32];
      mma32(middle, middle, u[c].high, v[c].high, u[c + 1].high, v[c + 1].high, w.x, w.y);
      mma32(middle, middle, u[c].low, v[c].low, u[c + 1].low, v[c + 1].low, w.z, w.w);
      mma32(high, high, u[c].high, v[c].high, u[c + 1].high, v[c + 1].high, w.z, w.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = middle[i] + high[i] * 256;
  }
};

// The largest of a word of each lane.
__device__ __forceinline__ unsigned warp_max(unsigned v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const unsigned other = __shfl_xor_sync(FULL, v, d);
    v = v > other ? v : other;
  }
  return v;
}

__device__ __forceinline__ unsigned warp_sum(unsigned v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(FULL, v, d);
  return v;
}
