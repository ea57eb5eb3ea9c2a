// state_tile applies a pass of gates to state vectors; see quantumset.go. A block loads a tile of 4,096 amplitudes,
// applies all gates of the pass, and stores the tile. A thread holds 16 amplitudes in registers, whose positions in the
// tile differ by phase. Between phases tiles change hands in shared memory, or within warps where held positions are
// exchanged with positions of lanes. Memory is read and written once.

#define TILE_SIZE (1u << TILE_QUBITS)
#define HELD (1u << HELD_QUBITS)
#define THREADS (TILE_SIZE / HELD)

__device__ __forceinline__ float2 times(float2 m, float2 a) {
  return make_float2(m.x * a.x - m.y * a.y, m.x * a.y + m.y * a.x);
}

__device__ __forceinline__ float2 plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }

// Applies a matrix to the pairs of the mask that differ in held bit T.
template <unsigned T>
__device__ __forceinline__ void apply(float2 (&a)[HELD], unsigned kind, unsigned mask, const float2 (&m)[4]) {
#define PAIRS                               \
  _Pragma("unroll")                         \
  for (unsigned r = 0; r < HELD; r++)       \
    if (!(r >> T & 1) && mask >> r & 1)
  switch (kind) {
  case GATE_DENSE:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = plus(times(m[0], x), times(m[1], y));
      a[r | 1u << T] = plus(times(m[2], x), times(m[3], y));
    }
    break;
  case GATE_REAL:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(m[0].x * x.x + m[1].x * y.x, m[0].x * x.y + m[1].x * y.y);
      a[r | 1u << T] = make_float2(m[2].x * x.x + m[3].x * y.x, m[2].x * x.y + m[3].x * y.y);
    }
    break;
  case GATE_MIXED:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(m[0].x * x.x - m[1].y * y.y, m[0].x * x.y + m[1].y * y.x);
      a[r | 1u << T] = make_float2(m[3].x * y.x - m[2].y * x.y, m[3].x * y.y + m[2].y * x.x);
    }
    break;
  case GATE_FLIP:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = times(m[1], y);
      a[r | 1u << T] = times(m[2], x);
    }
    break;
  case GATE_EXCHANGE:
    PAIRS {
      const float2 x = a[r];
      a[r] = a[r | 1u << T];
      a[r | 1u << T] = x;
    }
    break;
  }
#undef PAIRS
}

// Applies a turn or a pivot to all pairs that differ in held bit T.
template <unsigned T>
__device__ __forceinline__ void turn(float2 (&a)[HELD], bool pivot, float t) {
#pragma unroll
  for (unsigned r = 0; r < HELD; r++) {
    if (r >> T & 1) continue;
    const float2 x = a[r], y = a[r | 1u << T];
    if (pivot) {
      a[r] = make_float2(t * x.x - y.x, t * x.y - y.y);
      a[r | 1u << T] = make_float2(x.x + t * y.x, x.y + t * y.y);
    } else {
      a[r] = make_float2(x.x - t * y.x, x.y - t * y.y);
      a[r | 1u << T] = make_float2(t * x.x + y.x, t * x.y + y.y);
    }
  }
}

// The qubit of a position.
__device__ __forceinline__ unsigned qubit_of(u64 low, u64 high, unsigned position) {
  return (unsigned)(position < 6 ? low >> 8 * position : high >> 8 * (position - 6)) & 63;
}

// A place in shared memory: amplitudes that a half warp takes together are in different banks where their positions
// differ modulo 4.
__device__ __forceinline__ unsigned bank(unsigned local) { return local ^ (local >> 4 & 15) ^ (local >> 8 & 15); }

// Exchanges a held bit with a bit of the lane.
template <unsigned T>
__device__ __forceinline__ void trade(float2 (&a)[HELD], unsigned lane_bit) {
  const bool up = threadIdx.x & lane_bit;
#pragma unroll
  for (unsigned r = 0; r < HELD; r++) {
    if (r >> T & 1) continue;
    const float2 give = up ? a[r] : a[r | 1u << T];
    const float2 got = make_float2(__shfl_xor_sync(0xffffffffu, give.x, lane_bit),
                                   __shfl_xor_sync(0xffffffffu, give.y, lane_bit));
    a[r] = up ? got : a[r];
    a[r | 1u << T] = up ? a[r | 1u << T] : got;
  }
}

extern "C" __global__ void __launch_bounds__(256, 3)
state_tile(float *amplitudes, const unsigned long long *__restrict__ pass, const float *__restrict__ matrices,
           unsigned long long tiles, unsigned qubits, unsigned long long rows) {
  __shared__ float2 tile[TILE_SIZE];
  float2 *const all = (float2 *)amplitudes;
  const u64 low = pass[0], high = pass[1], fixed = pass[PASS_FIXED], flags = pass[PASS_FLAGS];
  const unsigned phases = (unsigned)pass[PASS_COUNTS], straight = (unsigned)flags & PASS_LOW;
  const u64 *gates = pass + PASS_WORDS + PHASE_WORDS * phases;
  const bool alone = blockDim.x == THREADS; // a thread keeps its amplitudes between phases
  u64 taken = fixed; // qubits that the index of a tile does not have, without the lowest ones
  for (unsigned p = straight; p < TILE_QUBITS; p++) taken |= 1ull << qubit_of(low, high, p);
  for (u64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    u64 base = t << straight;
    for (u64 left = taken; left; left &= left - 1) {
      const u64 below = (left & (0 - left)) - 1;
      base = (base & ~below) << 1 | (base & below);
    }
    base |= pass[PASS_VALUE];
    float2 a[HELD];
    bool shared = false; // whether the tile is in shared memory
    for (unsigned p = 0; p < phases; p++) {
      const u64 order = pass[PASS_WORDS + PHASE_WORDS * p], range = pass[PASS_WORDS + PHASE_WORDS * p + 1];
      const unsigned first = (unsigned)range, end = (unsigned)(range >> 32);
      const bool last = p + 1 == phases;
      const bool keeps = !last && alone && pass[PASS_WORDS + PHASE_WORDS * (p + 1)] >> PHASE_TRADES;
      for (unsigned v = threadIdx.x; v < THREADS; v += blockDim.x) {
        unsigned local = 0;
#pragma unroll
        for (unsigned k = 0; k < TILE_QUBITS - HELD_QUBITS; k++)
          local |= (v >> k & 1) << ((unsigned)(order >> 4 * (k + HELD_QUBITS)) & 15);
        u64 index = base;
        if (p == 0 || last || rows > 1) {
#pragma unroll
          for (unsigned k = 0; k < TILE_QUBITS - HELD_QUBITS; k++) {
            const unsigned position = (unsigned)(order >> 4 * (k + HELD_QUBITS)) & 15;
            index |= (u64)(v >> k & 1) << qubit_of(low, high, position);
          }
        }
#define HELD_AT(k) ((unsigned)(order >> 4 * k) & 15)
#define NEAR_AT(k) bank(1u << HELD_AT(k))
#define FAR_AT(k) 1ull << qubit_of(low, high, HELD_AT(k))
#define PART(of, r, k) (r >> k & 1 ? of[k] : 0)
#define NEAR(r) (bank(local) ^ PART(near, r, 0) ^ PART(near, r, 1) ^ PART(near, r, 2) ^ PART(near, r, 3))
#define FAR(r) (index + PART(far, r, 0) + PART(far, r, 1) + PART(far, r, 2) + PART(far, r, 3))
        if (p == 0) {
          const u64 far[HELD_QUBITS] = {FAR_AT(0), FAR_AT(1), FAR_AT(2), FAR_AT(3)};
          if (flags & PASS_FRESH) { // all qubits are 0
#pragma unroll
            for (unsigned r = 0; r < HELD; r++)
              a[r] = make_float2((FAR(r) & ((1ull << qubits) - 1)) == 0 ? 1.0f : 0.0f, 0.0f);
          } else {
#pragma unroll
            for (unsigned r = 0; r < HELD; r++) a[r] = all[FAR(r)];
          }
        } else if (alone && order >> PHASE_TRADES) {
          const unsigned trades = (unsigned)(order >> PHASE_TRADES);
          if (trades & 15) trade<0>(a, 1u << (trades & 15) >> 1);
          if (trades >> 4 & 15) trade<1>(a, 1u << (trades >> 4 & 15) >> 1);
          if (trades >> 8 & 15) trade<2>(a, 1u << (trades >> 8 & 15) >> 1);
          if (trades >> 12) trade<3>(a, 1u << (trades >> 12) >> 1);
        } else {
          const unsigned near[HELD_QUBITS] = {NEAR_AT(0), NEAR_AT(1), NEAR_AT(2), NEAR_AT(3)};
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) a[r] = tile[NEAR(r)];
        }
        float2 factor = make_float2(1.0f, 0.0f);
        for (unsigned g = first; g < end; g++) {
          const u64 *gate = gates + GATE_WORDS * g;
          const u64 head = gate[0];
          const unsigned kind = (unsigned)head & 15, mask = (unsigned)(head >> GATE_MASK) & 0xffff;
          if (kind == GATE_TABLE) {
            g += GATE_TABLE_WORDS / GATE_WORDS;
#pragma unroll
            for (unsigned r = 0; r < HELD; r++)
              if (mask >> r & 1) a[r] = times(((const float2 *)(gate + GATE_WORDS))[r], a[r]);
            continue;
          }
          // Words that a gate does not need are not read: each is the load of a whole warp.
          const bool here = !(head & GATE_FAR) || (base & gate[GATE_OUTSIDE]) == gate[GATE_VALUE];
          if (!here && !(head & GATE_APPLY)) continue;
          const bool holds = here && (local & (unsigned)(head >> GATE_LOCAL) & (TILE_SIZE - 1)) ==
                                         ((unsigned)(head >> GATE_LOCALS) & (TILE_SIZE - 1));
          const float2 *from = (const float2 *)(gate + GATE_MATRIX);
          if (head & GATE_PER_ROW) from = (const float2 *)matrices + 4 * (gate[GATE_MATRIX] * rows + (index >> qubits));
          if (kind == GATE_FACTOR) {
            if (holds) {
              unsigned ones = (unsigned)(head >> GATE_LAST & 1);
              if (head & GATE_SIGNED) {
                const u64 sign = gate[GATE_SIGN];
                const u64 signs = base & sign & ((1ull << GATE_SIGNS) - 1);
                ones += __popc((unsigned)signs) + __popc((unsigned)(signs >> 32)) +
                        __popc(local & (unsigned)(sign >> GATE_SIGNS));
              }
              factor = times(from[ones & 1 ? 3 : 0], factor);
            }
            if (head & GATE_APPLY) {
              if (factor.x != 1.0f || factor.y != 0.0f) {
#pragma unroll
                for (unsigned r = 0; r < HELD; r++)
                  if (mask >> r & 1) a[r] = times(factor, a[r]);
              }
              factor = make_float2(1.0f, 0.0f);
            }
            continue;
          }
          if (!holds) continue;
          const unsigned target = (unsigned)head >> 4 & 3;
          if (kind >= GATE_TURN) {
            const float t = from->x;
            const bool pivot = kind == GATE_PIVOT;
            switch (target) {
            case 0: turn<0>(a, pivot, t); break;
            case 1: turn<1>(a, pivot, t); break;
            case 2: turn<2>(a, pivot, t); break;
            default: turn<3>(a, pivot, t);
            }
            continue;
          }
          const float4 above = ((const float4 *)from)[0], under = ((const float4 *)from)[1];
          const float2 m[4] = {make_float2(above.x, above.y), make_float2(above.z, above.w),
                               make_float2(under.x, under.y), make_float2(under.z, under.w)};
          switch (target) {
          case 0: apply<0>(a, kind, mask, m); break;
          case 1: apply<1>(a, kind, mask, m); break;
          case 2: apply<2>(a, kind, mask, m); break;
          default: apply<3>(a, kind, mask, m);
          }
        }
        if (last) {
          const u64 far[HELD_QUBITS] = {FAR_AT(0), FAR_AT(1), FAR_AT(2), FAR_AT(3)};
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) all[FAR(r)] = a[r];
        } else if (!keeps) {
          const unsigned near[HELD_QUBITS] = {NEAR_AT(0), NEAR_AT(1), NEAR_AT(2), NEAR_AT(3)};
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) tile[NEAR(r)] = a[r];
        }
      }
      shared |= !last && !keeps;
      if (shared && !keeps) __syncthreads();
    }
  }
}
