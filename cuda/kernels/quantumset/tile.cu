// state_tile applies a pass of gates to state vectors; see quantumset.go. A block loads a tile of 4,096 amplitudes,
// applies all gates of the pass, and stores the tile. A thread holds 16 amplitudes in registers, whose positions in the
// tile differ by phase. Between phases tiles change hands in shared memory, or within warps where held positions are
// exchanged with positions of lanes. Memory is read and written once.

#define TILE_SIZE (1u << TILE_QUBITS)
#define HELD (1u << HELD_QUBITS)
#define THREADS (TILE_SIZE / HELD)

__device__ __forceinline__ float2 times(float2 m, float2 a) {
  return make_float2(__fmaf_rn(-m.y, a.y, m.x * a.x), __fmaf_rn(m.y, a.x, m.x * a.y));
}

// m a + b
__device__ __forceinline__ float2 times(float2 m, float2 a, float2 b) {
  return make_float2(__fmaf_rn(-m.y, a.y, __fmaf_rn(m.x, a.x, b.x)), __fmaf_rn(m.y, a.x, __fmaf_rn(m.x, a.y, b.y)));
}

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
      a[r] = times(m[1], y, times(m[0], x));
      a[r | 1u << T] = times(m[3], y, times(m[2], x));
    }
    break;
  case GATE_REAL:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(__fmaf_rn(m[1].x, y.x, m[0].x * x.x), __fmaf_rn(m[1].x, y.y, m[0].x * x.y));
      a[r | 1u << T] = make_float2(__fmaf_rn(m[2].x, x.x, m[3].x * y.x), __fmaf_rn(m[2].x, x.y, m[3].x * y.y));
    }
    break;
  case GATE_MIXED:
    PAIRS {
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(__fmaf_rn(-m[1].y, y.y, m[0].x * x.x), __fmaf_rn(m[1].y, y.x, m[0].x * x.y));
      a[r | 1u << T] = make_float2(__fmaf_rn(-m[2].y, x.y, m[3].x * y.x), __fmaf_rn(m[2].y, x.x, m[3].x * y.y));
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
__device__ __forceinline__ void turn(float2 (&a)[HELD], unsigned head, float t) {
  if (!(head >> (GATE_TURNS_OF + T) & 1)) return;
  if (head >> (GATE_PIVOTS_OF + T) & 1) {
#pragma unroll
    for (unsigned r = 0; r < HELD; r++) {
      if (r >> T & 1) continue;
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(__fmaf_rn(t, x.x, -y.x), __fmaf_rn(t, x.y, -y.y));
      a[r | 1u << T] = make_float2(__fmaf_rn(t, y.x, x.x), __fmaf_rn(t, y.y, x.y));
    }
  } else {
#pragma unroll
    for (unsigned r = 0; r < HELD; r++) {
      if (r >> T & 1) continue;
      const float2 x = a[r], y = a[r | 1u << T];
      a[r] = make_float2(__fmaf_rn(-t, y.x, x.x), __fmaf_rn(-t, y.y, x.y));
      a[r | 1u << T] = make_float2(__fmaf_rn(t, x.x, y.x), __fmaf_rn(t, x.y, y.y));
    }
  }
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
  const unsigned flags = (unsigned)pass[PASS_FLAGS], phases = (unsigned)pass[PASS_COUNTS];
  const unsigned runs = flags >> PASS_RUNS & 0xff, first_phase = PASS_WORDS + 2 * runs;
  const unsigned gates = first_phase + PHASE_WORDS * phases;
  const bool alone = blockDim.x == THREADS; // a thread keeps its amplitudes between phases
  for (unsigned t = blockIdx.x; t < (unsigned)tiles; t += gridDim.x) {
    u64 base = pass[PASS_VALUE];
    for (unsigned k = 0; k < runs; k++) base |= (u64)t << pass[PASS_WORDS + 2 * k + 1] & pass[PASS_WORDS + 2 * k];
    float2 a[HELD];
    bool shared = false; // whether the tile is in shared memory
    for (unsigned p = 0; p < phases; p++) {
      const u64 *const phase = pass + first_phase + PHASE_WORDS * p;
      const u64 range = phase[PHASE_GATES];
      const unsigned trades = (unsigned)(phase[0] >> PHASE_TRADES), end = (unsigned)(range >> 32) & 0x7fffffff;
      const bool last = p + 1 == phases;
      const bool keeps = alone && range >> 63;
      for (unsigned v = threadIdx.x; v < THREADS; v += blockDim.x) {
        // The places of a thread in the tile and in the state are sums of places of two nibbles.
        u64 place = 0; // which a phase between others may not need
        if (!keeps || !trades || rows > 1 || (unsigned)range >> 31)
          place = phase[PHASE_NIBBLES + (v & 15)] + phase[PHASE_NIBBLES + 16 + (v >> 4)];
        const unsigned local = (unsigned)(place >> PHASE_NEAR);
        const u64 index = base + (place & ((1ull << PHASE_NEAR) - 1));
#define NEAR_AT(k) (unsigned)(phase[PHASE_HELD + k] >> PHASE_NEAR)
#define FAR_AT(k) phase[PHASE_HELD + k] & ((1ull << PHASE_NEAR) - 1)
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
        } else if (alone && trades) {
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
        for (unsigned g = (unsigned)range & 0x7fffffff; g < end; g++) {
          const u64 *gate = pass + gates + GATE_WORDS * g;
          const u64 head = gate[0];
          const unsigned kind = (unsigned)head & 15, mask = (unsigned)(head >> GATE_MASK) & 0xffff;
          if (kind == GATE_TABLE) {
            g += GATE_TABLE_WORDS / GATE_WORDS;
            const float4 *const table = (const float4 *)(gate + GATE_WORDS);
            if (mask == 0xffff) {
#pragma unroll
              for (unsigned r = 0; r < HELD; r += 2) {
                const float4 by = table[r / 2];
                a[r] = times(make_float2(by.x, by.y), a[r]), a[r + 1] = times(make_float2(by.z, by.w), a[r + 1]);
              }
              continue;
            }
#pragma unroll
            for (unsigned r = 0; r < HELD; r++)
              if (mask >> r & 1) a[r] = times(((const float2 *)table)[r], a[r]);
            continue;
          }
          if (kind == GATE_LOOKUP) {
            const unsigned tables = (unsigned)(head >> GATE_TABLES) & 15;
            const float2 *table = (const float2 *)(gate + GATE_WORDS);
            float2 by = make_float2(1.0f, 0.0f);
            u64 nibbles = gate[GATE_OUTSIDE];
            for (unsigned k = 0; k < tables; k++, nibbles >>= 4, table += GATE_TABLE_WORDS) {
              const unsigned nibble = (unsigned)nibbles & 15;
              const unsigned at = nibble >= LOOKUP_LOCAL ? local >> 4 * (nibble - LOOKUP_LOCAL)
                                                         : (unsigned)(base >> 4 * nibble);
              const float2 number = table[at & 15];
              by = k == 0 ? number : times(number, by);
            }
            if (by.x != 1.0f || by.y != 0.0f) {
#pragma unroll
              for (unsigned r = 0; r < HELD; r++)
                if (mask >> r & 1) a[r] = times(by, a[r]);
            }
            g += tables * (GATE_TABLE_WORDS / GATE_WORDS);
            continue;
          }
          if (kind == GATE_TURNS) {
            const float4 t = *(const float4 *)(gate + GATE_MATRIX);
            turn<0>(a, (unsigned)head, t.x);
            turn<1>(a, (unsigned)head, t.y);
            turn<2>(a, (unsigned)head, t.z);
            turn<3>(a, (unsigned)head, t.w);
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
