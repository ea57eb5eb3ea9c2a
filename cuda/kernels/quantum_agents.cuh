// The quantum cell of agent-addressed swarms: a thread has all amplitudes of an agent in registers.
// cuda/host/celltwin/quantum_agents.go does the same operation by operation. No two operations are fused.
#pragma once

#ifndef QUBITS
#define QUBITS 4
#endif
#include "quantum_words.cuh"

#define SWARM_VARS (QUANTUM_VAR_STATE + 1)
#include "agents.cuh"
#include "philox.cuh"

#define AMPLITUDES (1u << QUBITS)
// Blocks that a multiprocessor has registers for: 64, 128 or 255 a thread.
#define QUANTUM_BLOCKS (QUBITS < 5 ? 8 : QUBITS < 6 ? 4 : 2)

// The amplitudes of an agent.
struct Qubits {
  float re[AMPLITUDES], im[AMPLITUDES];

  // All qubits are 0.
  __device__ __forceinline__ void zero() {
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) re[r] = r ? 0.0f : 1.0f, im[r] = 0.0f;
  }
  // The state of agent at of a page whose elements are stride apart.
  __device__ __forceinline__ void load(const float *state, unsigned stride) {
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++)
      re[r] = state[(u64)(2 * r) * stride], im[r] = state[(u64)(2 * r + 1) * stride];
  }
  __device__ __forceinline__ void store(float *state, unsigned stride) const {
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++)
      state[(u64)(2 * r) * stride] = re[r], state[(u64)(2 * r + 1) * stride] = im[r];
  }

  // 2^23 + |a|^2 QUANTUM_WEIGHT has the weight, rounded to even, in its lowest bits.
  __device__ __forceinline__ unsigned weight(unsigned r) const {
    return __float_as_uint((re[r] * re[r] + im[r] * im[r]) * (float)QUANTUM_WEIGHT + 8388608.0f) - 0x4b000000u;
  }
  __device__ __forceinline__ unsigned weight() const {
    unsigned sum = 0;
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) sum += weight(r);
    return sum;
  }
  // Brings the norm back to 1 if rounding has moved it, and returns the weight.
  __device__ __forceinline__ unsigned normalise() {
    const unsigned sum = weight();
    if (sum - (QUANTUM_WEIGHT - QUANTUM_DRIFT) <= 2 * QUANTUM_DRIFT) return sum;
    const float scale = quo(1.0f, __fsqrt_rn(mul((float)sum, 1.0f / QUANTUM_WEIGHT)));
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) re[r] *= scale, im[r] *= scale;
    return weight();
  }

  // A gate whose target is qubit T.
  template <unsigned T> __device__ __forceinline__ void gate(unsigned kind, u64 mask, const float4 *matrix) {
    if (T >= QUBITS) return;
    if (kind == QUANTUM_EXCHANGE) {
#pragma unroll
      for (unsigned r = 0; r < AMPLITUDES; r++) {
        if (r >> T & 1 || !(mask >> r & 1)) continue;
        const unsigned q = (r | 1u << T) % AMPLITUDES;
        const float x = re[r], y = im[r];
        re[r] = re[q], im[r] = im[q];
        re[q] = x, im[q] = y;
      }
      return;
    }
    const float4 u = __ldg(matrix), v = __ldg(matrix + 1);
    if (kind == QUANTUM_MIXED) {
#pragma unroll
      for (unsigned r = 0; r < AMPLITUDES; r++) {
        if (r >> T & 1) continue;
        const unsigned q = (r | 1u << T) % AMPLITUDES;
        const float a = re[r], b = im[r], c = re[q], d = im[q];
        re[r] = u.x * a - u.w * d, im[r] = u.x * b + u.w * c;
        re[q] = v.z * c - v.y * b, im[q] = v.z * d + v.y * a;
      }
      return;
    }
    if (kind == QUANTUM_REAL) {
#pragma unroll
      for (unsigned r = 0; r < AMPLITUDES; r++) {
        if (r >> T & 1) continue;
        const unsigned q = (r | 1u << T) % AMPLITUDES;
        const float a = re[r], b = im[r], c = re[q], d = im[q];
        re[r] = u.x * a + u.z * c, im[r] = u.x * b + u.z * d;
        re[q] = v.x * a + v.z * c, im[q] = v.x * b + v.z * d;
      }
      return;
    }
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) {
      if (r >> T & 1 || !(mask >> r & 1)) continue;
      const unsigned q = (r | 1u << T) % AMPLITUDES;
      const float a = re[r], b = im[r], c = re[q], d = im[q];
      re[r] = (u.x * a - u.y * b) + (u.z * c - u.w * d), im[r] = (u.x * b + u.y * a) + (u.z * d + u.w * c);
      re[q] = (v.x * a - v.y * b) + (v.z * c - v.w * d), im[q] = (v.x * b + v.y * a) + (v.z * d + v.w * c);
    }
  }

  __device__ __forceinline__ void factor(unsigned target, u64 mask, const float4 *matrix) {
    const float4 u = __ldg(matrix), v = __ldg(matrix + 1);
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) {
      if (!(mask >> r & 1)) continue;
      const bool one = r >> target & 1;
      const float x = one ? v.z : u.x, y = one ? v.w : u.y, a = re[r], b = im[r];
      re[r] = x * a - y * b, im[r] = x * b + y * a;
    }
  }

  // Runs the circuit once.
  __device__ __forceinline__ void run(const unsigned *table) {
    const unsigned gates = __ldg(table + QUANTUM_TABLE_COUNT);
    const uint4 *at = (const uint4 *)(table + QUANTUM_TABLE_GATES);
    for (unsigned g = 0; g < gates; g++, at += QUANTUM_GATE_WORDS / 4) {
      const uint4 head = __ldg(at);
      const unsigned kind = head.x & 15, target = head.x >> 4;
      const u64 mask = (u64)head.w << 32 | head.z;
      const float4 *matrix = (const float4 *)(at + QUANTUM_GATE_MATRIX / 4);
      if (kind == QUANTUM_FACTOR) {
        factor(target, mask, matrix);
        continue;
      }
      switch (target) {
      case 0: gate<0>(kind, mask, matrix); break;
      case 1: gate<1>(kind, mask, matrix); break;
      case 2: gate<2>(kind, mask, matrix); break;
      case 3: gate<3>(kind, mask, matrix); break;
      case 4: gate<4>(kind, mask, matrix); break;
      default: gate<5>(kind, mask, matrix);
      }
    }
  }

  // The ballot of an agent by its draw of a number. all is the weight.
  __device__ __forceinline__ unsigned draw(const unsigned *params, const unsigned *table, unsigned agent, unsigned low,
      unsigned high, unsigned all) const {
    const unsigned random = philox(params[QUANTUM_KEY], params[QUANTUM_KEY + 1], 0, params[QUANTUM_FIRST] + agent, low,
                                   high);
    const unsigned at = __umulhi(random, all), places = __ldg(table + QUANTUM_TABLE_PLACES);
    unsigned index = 0, sum = 0, ballot = 0;
#pragma unroll
    for (unsigned r = 0; r < AMPLITUDES; r++) {
      sum += weight(r);
      index += sum <= at;
    }
#pragma unroll
    for (unsigned q = 0; q < QUBITS; q++) {
      const unsigned place = places >> 4 * q & 15;
      if (place != QUANTUM_NO_PLACE) ballot |= (index >> q & 1) << place;
    }
    return ballot;
  }
};

// The sine and the cosine of half an angle, |x| <= QUANTUM_ANGLE, rounded to float32.
__device__ __forceinline__ void half_angle(float x, float *sine, float *cosine) {
  const double y = (double)x * 0.5, k = rint(y * 0.63661977236758134);
  // pi/2 in two parts; a product with the first one is exact
  const double r = (y - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11, q = r * r;
  double s = -1.0 / 1307674368000.0, c = 1.0 / 20922789888000.0;
  s = s * q + 1.0 / 6227020800.0, c = c * q - 1.0 / 87178291200.0;
  s = s * q - 1.0 / 39916800.0, c = c * q + 1.0 / 479001600.0;
  s = s * q + 1.0 / 362880.0, c = c * q - 1.0 / 3628800.0;
  s = s * q - 1.0 / 5040.0, c = c * q + 1.0 / 40320.0;
  s = s * q + 1.0 / 120.0, c = c * q - 1.0 / 720.0;
  s = s * q - 1.0 / 6.0, c = c * q + 1.0 / 24.0;
  s = s * q + 1.0, c = c * q - 0.5;
  s = s * r, c = c * q + 1.0;
  const unsigned turn = (unsigned)(int)k & 3;
  const double a = turn & 1 ? c : s, b = turn & 1 ? s : c;
  *sine = (float)(turn & 2 ? -a : a);
  *cosine = (float)(turn == 1 || turn == 2 ? -b : b);
}
