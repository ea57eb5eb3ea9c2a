// The gated recurrent unit of agent-addressed swarms: torch.nn.GRUCell with sums of products of 16-bit fixed point
// numbers, each two signed bytes, high and low. A warp steps tiles of 16 agents, and lane 4 g + t has agents g and g +
// 8 of a tile, of each the PIECE units and inputs from t * PIECE on. Sums are exact integers in any order, so
// cuda/host/celltwin/gru_agents.go has the same bits; what may not overflow is said in gru_table.go.
#pragma once

#include "agents.cuh"
#include "mma.cuh"

#ifndef HIDDEN
#define HIDDEN 8
#define ELEM F32
#define GRU_BLOCKS 4 // a multiprocessor
#endif

#define GRU_BLOCK 128
#define TILES (HIDDEN == 8 ? 2 : 1) // of 16 agents that a warp steps at once
#define ROWS (2 * TILES)            // agents of a lane: g + 8 r
#define PIECE (HIDDEN / 4)
#define WORDS (PIECE * ELEM::BYTES / 4)    // of 32 bits in a piece
#define ROW (2 * HIDDEN * ELEM::BYTES)     // bytes of an agent: its units and behind them its inputs
#define HALF (HIDDEN * ELEM::BYTES)        // where the inputs begin
// of 16 units. There are as many chunks of 16 inputs, but 8 units and their inputs are in one chunk
#define CHUNKS (HIDDEN == 8 ? 1 : HIDDEN / 16)
#define COLUMNS (HIDDEN / 8)               // tiles of 8 columns of a gate
#define ALL (HIDDEN == 8 ? 1 : 2 * CHUNKS) // chunks of units and inputs
#define FRAGMENTS (2 * COLUMNS * (ALL + CHUNKS))
#define OWNS (threadIdx.x % 4 < ROWS)      // this lane has the vote of an agent: g + 8 t

// The words of a table; see gru_table.go.
#define TABLE_BIAS 8
#define TABLE_READOUT_BIAS (TABLE_BIAS + 4 * HIDDEN)
#define TABLE_WEIGHTS (TABLE_READOUT_BIAS + AGENT_MOST_CANDIDATES)
#define TABLE_READOUT (TABLE_WEIGHTS + 3 * HIDDEN * HIDDEN)

// Four numbers, byte by byte.
struct Bytes {
  unsigned high, low;
};

// Of four halves of words, each a number + 128: its high byte, and its low one less 128.
__device__ __forceinline__ Bytes bytes_of(unsigned p, unsigned q) {
  Bytes b;
  b.high = __byte_perm(p, q, 0x7531);
  b.low = __byte_perm(p, q, 0x6420) ^ 0x80808080u;
  return b;
}

// Two values as numbers, + 128, in the halves of a word: the last bits of a float32 that is 1.5 * 2^23 and more are an
// integer, rounded to nearest.
__device__ __forceinline__ unsigned halves_of(const float *v, float scale) {
  const float one = 12582912.0f + 128.0f;
  return __byte_perm(__float_as_uint(fma32(v[0], scale, one)), __float_as_uint(fma32(v[1], scale, one)), 0x5410);
}

// Four values as numbers.
__device__ __forceinline__ Bytes bytes_of(const float *v, float scale) {
  return bytes_of(halves_of(v, scale), halves_of(v + 2, scale));
}

// N words of a row in memory, at a multiple of their size or of 16 bytes.
template <int N> struct Words {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const uint4 v = __ldcs((const uint4 *)(from + 4 * k));
      to[k] = v.x, to[k + 1] = v.y, to[k + 2] = v.z, to[k + 3] = v.w;
    }
  }
  static __device__ __forceinline__ void store(unsigned char *to, const unsigned *from) {
#pragma unroll
    for (int k = 0; k < N; k += 4)
      __stcs((uint4 *)(to + 4 * k), make_uint4(from[k], from[k + 1], from[k + 2], from[k + 3]));
  }
};

template <> struct Words<2> {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
    const uint2 v = __ldcs((const uint2 *)from);
    to[0] = v.x, to[1] = v.y;
  }
  static __device__ __forceinline__ void store(unsigned char *to, const unsigned *from) {
    __stcs((uint2 *)to, make_uint2(from[0], from[1]));
  }
};

template <> struct Words<1> {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
    to[0] = __ldcs((const unsigned *)from);
  }
  static __device__ __forceinline__ void store(unsigned char *to, const unsigned *from) {
    __stcs((unsigned *)to, from[0]);
  }
};

typedef Words<WORDS> Piece;

// What a block shares: fragments of matrices, and biases. Of a fragment lane 4 g + t has four numbers of column g.
struct Shared {
  // int32 of gates r, z, and of the inputs' and the units' part of n: of a lane's two columns, twice
  uint4 bias[COLUMNS][4][4];
  // of two chunks: low, low, high, high; a single one is half of it: low, high
  uint4 weights[HIDDEN == 8 ? 1 : FRAGMENTS / 2][32];
  uint2 readout[2][CHUNKS][32];                       // low, high
  uint4 readout_bias[2][4]; // the same of the readout
};

struct Net {
  const Shared *shared;
  const unsigned candidates;
  uint2 weights[HIDDEN == 8 ? FRAGMENTS : 1];
  Logistic logistic;

  // The four numbers of row of a table of int16 from k on, and of 8 units two and the two of the inputs that are behind
  // them.
  static __device__ __forceinline__ uint2 fragment(const unsigned *row, unsigned k, bool first, bool second) {
    unsigned p = row[k / 2], q = HIDDEN == 8 ? row[(k + HIDDEN) / 2] : row[k / 2 + 1];
    if (!first) p = 0;
    if (!second) q = 0;
    const Bytes b = bytes_of(((p + 128) & 0xffffu) | ((p & 0xffff0000u) + 0x800000u),
        ((q + 128) & 0xffffu) | ((q & 0xffff0000u) + 0x800000u));
    return make_uint2(b.low, b.high);
  }

  // Fragment number i of the weights.
  static __device__ __forceinline__ uint2 weight(const unsigned *table, int i, unsigned lane) {
    const int n = 2 * COLUMNS * ALL, gate = i < n ? i / (COLUMNS * ALL) : 2 + (i - n) / (COLUMNS * CHUNKS);
    const int part = i < n ? i % (COLUMNS * ALL) : (i - n) % (COLUMNS * CHUNKS), chunks = i < n ? ALL : CHUNKS;
    const int j = part / chunks, c = part % chunks + (HIDDEN > 8 && gate == 2 ? CHUNKS : 0);
    const unsigned g = lane / 4, t = lane % 4, unit = g / 2 * PIECE + 2 * j + g % 2;
    const unsigned *row = table + TABLE_WEIGHTS + ((gate < 2 ? gate : 2) * HIDDEN + unit) * HIDDEN;
    return fragment(row, HIDDEN == 8 ? 2 * t : c / CHUNKS * HIDDEN + t * PIECE + c % CHUNKS * 4,
        HIDDEN > 8 || gate != 2, HIDDEN > 8 || gate != 3);
  }

  // All threads of a block open it.
  __device__ __forceinline__ Net(Shared *to, const unsigned *table, unsigned c) : shared(to), candidates(c) {
    open_gates(to, table);
    for (unsigned i = threadIdx.x; i < 2 * CHUNKS * 32; i += blockDim.x) {
      const unsigned k = i % 32, chunk = i / 32 % CHUNKS, candidate = i / 32 / CHUNKS * 8 + k / 4;
      const unsigned *row = table + TABLE_READOUT + candidate * HIDDEN / 2;
      to->readout[i / 32 / CHUNKS][chunk][k] = HIDDEN == 8 ? votes_of(row, k % 4) : fragment(row,
          k % 4 * PIECE + 4 * chunk, true, true);
    }
    if (threadIdx.x < 8) {
      const unsigned *b = table + TABLE_READOUT_BIAS + 2 * threadIdx.x;
      to->readout_bias[threadIdx.x / 4][threadIdx.x % 4] = make_uint4(b[0], b[1], b[0], b[1]);
    }
    __syncthreads();
  }

  // The gates alone, without a readout: of a table that ends before TABLE_READOUT.
  __device__ __forceinline__ Net(Shared *to, const unsigned *table) : shared(to), candidates(0) {
    open_gates(to, table);
    __syncthreads();
  }

  __device__ __forceinline__ void open_gates(Shared *to, const unsigned *table) {
    const unsigned lane = threadIdx.x % 32;
    logistic.load((const float *)table);
    if (HIDDEN == 8) {
#pragma unroll
      for (int i = 0; i < FRAGMENTS; i++) weights[HIDDEN == 8 ? i : 0] = weight(table, i, lane);
    } else {
      for (unsigned i = threadIdx.x; i < FRAGMENTS * 32; i += blockDim.x) {
        const unsigned f = i / 32, at = i % 32;
        const uint2 w = weight(table, (int)f, at);
        unsigned *words = (unsigned *)to->weights;
        if (CHUNKS > 1 || f < 2 * COLUMNS * ALL)
          words[f / 2 * 128 + at * 4 + f % 2] = w.x, words[f / 2 * 128 + at * 4 + 2 + f % 2] = w.y;
        else
          words[f * 64 + at * 2] = w.x, words[f * 64 + at * 2 + 1] = w.y;
      }
    }
    for (unsigned i = threadIdx.x; i < COLUMNS * 16; i += blockDim.x) {
      const unsigned *b = table + TABLE_BIAS + (i % 4 * PIECE + i / 16 * 2) * 4 + i / 4 % 4;
      to->bias[i / 16][i / 4 % 4][i % 4] = make_uint4(b[0], b[4], b[0], b[4]);
    }
  }

  // Of 8 units the high and the low bytes are in one fragment. The middle sum takes the low and the high bytes of the
  // weights, and the high sum takes the high bytes and zeros.
  static __device__ __forceinline__ uint2 votes_of(const unsigned *row, unsigned t) {
    const uint2 v = fragment(row, 2 * t, true, false);
    return make_uint2((v.x & 0xffffu) | v.y << 16, v.y & 0xffffu);
  }

  // The inputs x of the lane's agents as numbers. 8 inputs are halves of words, beside the halves of the units.
  static __device__ __forceinline__ void hold(Bytes (*a)[ALL], unsigned *halves, const float (*x)[PIECE]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (HIDDEN == 8) halves[r] = halves_of(x[r], AGENT_INPUT_SCALE);
#pragma unroll
      for (int c = 0; c < CHUNKS && HIDDEN > 8; c++) a[r][ALL - CHUNKS + c] = bytes_of(x[r] + 4 * c, AGENT_INPUT_SCALE);
    }
  }

  // And their units h.
  static __device__ __forceinline__ void numbers(Bytes (*a)[ALL], const unsigned *halves, const float (*h)[PIECE]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int c = 0; c < CHUNKS; c++)
        a[r][c] = HIDDEN == 8 ? bytes_of(halves_of(h[r], AGENT_UNIT_SCALE), halves[r]) : bytes_of(h[r] + 4 * c,
            AGENT_UNIT_SCALE);
    }
  }

  // The sums of the gates r, z, and of the inputs' and the units' part of n: of the lane's agents m and m + 1, units
  // 2 j and 2 j + 1 of its piece. a has their units and inputs as numbers.
  __device__ __forceinline__ void sums(float (*sum)[4], const Bytes (*a)[ALL], int m, int j) const {
    const unsigned lane = threadIdx.x % 32;
    const int zero[4] = {0, 0, 0, 0};
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
      const int chunks = gate < 2 ? ALL : CHUNKS, first = HIDDEN > 8 && gate == 2 ? CHUNKS : 0;
      const int base = gate < 2 ? (gate * COLUMNS + j) * ALL : 2 * COLUMNS * ALL + ((gate - 2) * COLUMNS + j) * CHUNKS;
      const uint4 b = shared->bias[j][gate][lane % 4];
      int middle[4] = {(int)b.x, (int)b.y, (int)b.z, (int)b.w}, high[4] = {0, 0, 0, 0};
      if (chunks == 1) {
        const uint2 w = HIDDEN == 8 ? weights[HIDDEN == 8 ? base : 0]
            : ((const uint2 *)shared->weights)[base * 32 + lane];
        const Bytes u = a[m][first], v = a[m + 1][first];
        if (HIDDEN == 8) {
          mma32(middle, middle, u.high, v.high, u.low, v.low, w.x, w.y);
        } else { // where u and v are halves of what the other gates multiply
          mma16(middle, middle, u.high, v.high, w.x);
          mma16(middle, middle, u.low, v.low, w.y);
        }
        mma16(high, zero, u.high, v.high, w.y);
      }
#pragma unroll
      for (int c = 0; c + 1 < chunks; c += 2) {
        const uint4 w = shared->weights[HIDDEN == 8 ? 0 : (base + c) / 2][lane];
        const Bytes *u = &a[m][first + c], *v = &a[m + 1][first + c];
        mma32(middle, middle, u[0].high, v[0].high, u[1].high, v[1].high, w.x, w.y);
        mma32(middle, middle, u[0].low, v[0].low, u[1].low, v[1].low, w.z, w.w);
        mma32(high, high, u[0].high, v[0].high, u[1].high, v[1].high, w.z, w.w);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) sum[gate][i] = (float)(middle[i] + high[i] * 256);
    }
  }

  // Steps the units h of the lane's agents. a has their units and inputs as numbers.
  __device__ __forceinline__ void step(float (*h)[PIECE], const Bytes (*a)[ALL]) const {
#pragma unroll
    for (int m = 0; m < ROWS; m += 2) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        float sum[4][4];
        sums(sum, a, m, j);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float r = logistic(sum[0][i]), z = logistic(sum[1][i]);
          // tanh: the rows of n are doubled
          const float n = fma32(2.0f, logistic(fma32(r, sum[3][i], sum[2][i])), -1.0f);
          float *own = &h[m + i / 2][2 * j + i % 2];
          *own = fma32(z, __fsub_rn(*own, n), n);
        }
      }
    }
  }

  // The better of two candidates of each of the lane's agents, and of what it had.
  __device__ __forceinline__ void compare(const Bytes (*a)[CHUNKS], int tile, int *key) const {
    const unsigned lane = threadIdx.x % 32;
    const int zero[4] = {0, 0, 0, 0}, last = 15 - 8 * tile - 2 * (int)(lane % 4);
    const uint4 b = shared->readout_bias[tile][lane % 4];
#pragma unroll
    for (int m = 0; m < ROWS; m += 2) {
      int middle[4] = {(int)b.x, (int)b.y, (int)b.z, (int)b.w}, high[4] = {0, 0, 0, 0};
#pragma unroll
      for (int c = 0; c < CHUNKS; c++) {
        const uint2 w = shared->readout[tile][c][lane];
        if (HIDDEN == 8) {
          mma16(middle, middle, a[m][0].high, a[m + 1][0].high, w.x); // both bytes, see elected
          mma16(high, zero, a[m][0].high, a[m + 1][0].high, w.y);
        } else {
          mma32(middle, middle, a[m][c].high, a[m + 1][c].high, a[m][c].low, a[m + 1][c].low, w.x, w.y);
          mma16(high, high, a[m][c].high, a[m + 1][c].high, w.y);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int k = (middle[i] + high[i] * 256) * 16 + last - i % 2;
        if ((tile == 0 && i % 2 == 0) || k > key[m + i / 2]) key[m + i / 2] = k;
      }
    }
  }

  static __device__ __forceinline__ int most(int mine, int other, int lanes) {
    const int theirs = (int)__shfl_xor_sync(FULL, (unsigned)other, lanes);
    return mine > theirs ? mine : theirs;
  }

  // The candidate of agent g + 8 t of the tile by the units h, where lanes own one; the largest sum, of equal ones the
  // smallest index: keys are the sum and 15 less the index.
  __device__ __forceinline__ unsigned elected(const float (*h)[PIECE]) const {
    Bytes a[ROWS][CHUNKS];
    int key[4];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int c = 0; c < CHUNKS; c++) {
        if (HIDDEN > 8) {
          a[r][c] = bytes_of(h[r] + 4 * c, AGENT_UNIT_SCALE);
        } else if (r % 2 == 0) {
          const Bytes two = bytes_of(halves_of(h[r], AGENT_UNIT_SCALE), halves_of(h[r + 1], AGENT_UNIT_SCALE));
          a[r][0].high = __byte_perm(two.high, two.low, 0x5410);
          a[r + 1][0].high = __byte_perm(two.high, two.low, 0x7632);
        }
      }
    }
    compare(a, 0, key);
    if (candidates > 8) compare(a, 1, key);
    const unsigned t = threadIdx.x % 4;
    const int even = most(t & 1 ? key[1] : key[0], t & 1 ? key[0] : key[1], 1); // of row t % 2
    int own;
    if (ROWS == 4) {
      // and of row 2 + t % 2
      const int odd = most(t & 1 ? key[ROWS - 1] : key[ROWS - 2], t & 1 ? key[ROWS - 2] : key[ROWS - 1], 1);
      own = most(t & 2 ? odd : even, t & 2 ? even : odd, 2);
    } else {
      own = most(even, even, 2);
    }
    return 15u - ((unsigned)own & 15u);
  }
};
