// state_tile applies a pass of gates to state vectors; see quantumset.go. A block loads a tile of 4,096 amplitudes,
// applies all gates of the pass, and stores the tile. A thread holds 16 amplitudes in registers, whose positions in the
// tile differ by phase; tiles change hands in shared memory between phases. Memory is read and written once.

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

// The qubit of a position.
__device__ __forceinline__ unsigned qubit_of(u64 low, u64 high, unsigned position) {
  return (unsigned)(position < 6 ? low >> 8 * position : high >> 8 * (position - 6)) & 63;
}

// A place in shared memory: amplitudes that a half warp takes together are in different banks where their positions
// differ modulo 4.
__device__ __forceinline__ unsigned bank(unsigned local) { return local ^ (local >> 4 & 15) ^ (local >> 8 & 15); }

extern "C" __global__ void __launch_bounds__(256, 3)
state_tile(float *amplitudes, const unsigned long long *__restrict__ pass, const float *__restrict__ matrices,
           unsigned long long tiles, unsigned qubits, unsigned long long rows) {
  __shared__ float2 tile[TILE_SIZE];
  float2 *const all = (float2 *)amplitudes;
  const u64 low = pass[0], high = pass[1], fixed = pass[PASS_FIXED], flags = pass[PASS_FLAGS];
  const unsigned phases = (unsigned)pass[PASS_COUNTS], straight = (unsigned)flags & PASS_LOW;
  const u64 *gates = pass + PASS_WORDS + PHASE_WORDS * phases;
  u64 taken = fixed; // qubits that the index of a tile does not have, without the lowest ones
  for (unsigned p = straight; p < TILE_QUBITS; p++) taken |= 1ull << qubit_of(low, high, p);
  for (u64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    u64 base = t << straight;
    for (u64 left = taken; left; left &= left - 1) {
      const u64 below = (left & (0 - left)) - 1;
      base = (base & ~below) << 1 | (base & below);
    }
    base |= pass[PASS_VALUE];
    for (unsigned p = 0; p < phases; p++) {
      const u64 order = pass[PASS_WORDS + PHASE_WORDS * p], range = pass[PASS_WORDS + PHASE_WORDS * p + 1];
      const unsigned first = (unsigned)range, end = (unsigned)(range >> 32);
      for (unsigned v = threadIdx.x; v < THREADS; v += blockDim.x) {
        unsigned local = 0;
        u64 index = base;
#pragma unroll
        for (unsigned k = 0; k < TILE_QUBITS - HELD_QUBITS; k++) {
          const unsigned position = (unsigned)(order >> 4 * (k + HELD_QUBITS)) & 15, bit = v >> k & 1;
          local |= bit << position;
          index |= (u64)bit << qubit_of(low, high, position);
        }
        unsigned near[HELD_QUBITS];
        u64 far[HELD_QUBITS];
#pragma unroll
        for (unsigned k = 0; k < HELD_QUBITS; k++) {
          const unsigned position = (unsigned)(order >> 4 * k) & 15;
          near[k] = bank(1u << position);
          far[k] = 1ull << qubit_of(low, high, position);
        }
#define PART(of, r, k) (r >> k & 1 ? of[k] : 0)
#define NEAR(r) (bank(local) ^ PART(near, r, 0) ^ PART(near, r, 1) ^ PART(near, r, 2) ^ PART(near, r, 3))
#define FAR(r) (index + PART(far, r, 0) + PART(far, r, 1) + PART(far, r, 2) + PART(far, r, 3))
        float2 a[HELD];
        if (p > 0) {
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) a[r] = tile[NEAR(r)];
        } else if (flags & PASS_FRESH) { // all qubits are 0
#pragma unroll
          for (unsigned r = 0; r < HELD; r++)
            a[r] = make_float2((FAR(r) & ((1ull << qubits) - 1)) == 0 ? 1.0f : 0.0f, 0.0f);
        } else {
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) a[r] = all[FAR(r)];
        }
        float2 factor = make_float2(1.0f, 0.0f);
        for (unsigned g = first; g < end; g++) {
          const u64 *gate = gates + GATE_WORDS * g;
          const u64 head = gate[0];
          const bool here = (base & gate[GATE_OUTSIDE]) == gate[GATE_VALUE];
          if (!here && !(head & GATE_APPLY)) continue;
          const bool holds = here && (local & (unsigned)(head >> GATE_LOCAL) & (TILE_SIZE - 1)) ==
                                         ((unsigned)(head >> GATE_LOCALS) & (TILE_SIZE - 1));
          const unsigned kind = (unsigned)head & 15, mask = (unsigned)(head >> GATE_MASK) & 0xffff;
          float2 m[4];
          const float4 *from = (const float4 *)(gate + GATE_MATRIX);
          if (head & GATE_PER_ROW) from = (const float4 *)matrices + 2 * (gate[GATE_MATRIX] * rows + (index >> qubits));
          const float4 above = from[0], under = from[1];
          m[0] = make_float2(above.x, above.y), m[1] = make_float2(above.z, above.w);
          m[2] = make_float2(under.x, under.y), m[3] = make_float2(under.z, under.w);
          if (kind == GATE_FACTOR) {
            if (holds) {
              const u64 sign = gate[GATE_SIGN];
              const u64 signs = base & sign & ((1ull << GATE_SIGNS) - 1);
              const unsigned ones = __popc((unsigned)signs) + __popc((unsigned)(signs >> 32)) +
                                    __popc(local & (unsigned)(sign >> GATE_SIGNS)) + (unsigned)(head >> GATE_LAST & 1);
              factor = times(ones & 1 ? m[3] : m[0], factor);
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
          switch ((unsigned)head >> 4 & 3) {
          case 0: apply<0>(a, kind, mask, m); break;
          case 1: apply<1>(a, kind, mask, m); break;
          case 2: apply<2>(a, kind, mask, m); break;
          default: apply<3>(a, kind, mask, m);
          }
        }
        if (p + 1 < phases) {
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) tile[NEAR(r)] = a[r];
        } else {
#pragma unroll
          for (unsigned r = 0; r < HELD; r++) all[FAR(r)] = a[r];
        }
      }
      if (phases > 1) __syncthreads();
    }
  }
}
