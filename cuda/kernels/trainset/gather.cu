// train_gather makes the gradient of sums, and its norm; see trainset.go. A block takes a super tile of the gradient
// at a time, and a warp a tile. The last block to end adds up the sums of the super tiles, at most as many as a super
// tile has elements.

#define ROW 128              // elements that a warp adds at once
#define SUPER_TILES 16       // tiles of a super tile
#define TILE (SUPER_TILE / SUPER_TILES)

struct Gather {
  const unsigned long long *gate_sums, *readout_sums, *embed_sums;
  const int *exponents;
  float keep, inverse;
  unsigned runs;

  static __device__ __forceinline__ float of(unsigned long long sum, float unit) {
    return __fmul_rn((float)(long long)sum, unit);
  }

  __device__ __forceinline__ float gate(const Sizes &s, unsigned i) const {
    int bits = i < 3 * s.square ? -UNIT_BITS : i < 6 * s.square ? -INPUT_BITS : 0; // of units, inputs, and biases
    if (i < 6 * s.square ? s.gate(i) == 2 : (i - 6 * s.square) / s.units % 3 == 2) bits++;
    float v = 0.0f;
    for (unsigned run = 0; run < runs; run++)
      v = __fadd_rn(v, of(gate_sums[(unsigned long long)run * s.gates + i], power_of_two(bits - exponents[run])));
    return v;
  }

  // Element i of the gradient.
  __device__ __forceinline__ float at(const Sizes &s, unsigned long long i) const {
    float v;
    if (i >= s.bias)
      v = of(embed_sums[i - s.bias], power_of_two(-EMBED_BITS));
    else if (i >= s.readout)
      v = of(readout_sums[i - s.gates], power_of_two(-GRADIENT_BITS));
    else if (i >= s.gates)
      v = of(readout_sums[i - s.gates], __fmul_rn(keep, power_of_two(-GRADIENT_BITS - UNIT_BITS)));
    else
      v = gate(s, (unsigned)i);
    return __fmul_rn(v, inverse);
  }
};

// The sum of a tile in the order of cuda/expr/ir, of four sums a lane. The lanes of a warp have it.
__device__ __forceinline__ float tile_sum(const float *v) {
  float s = __fadd_rn(__fadd_rn(v[0], v[1]), __fadd_rn(v[2], v[3]));
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    s = __fadd_rn(s, __uint_as_float(__shfl_xor_sync(0xffffffffu, __float_as_uint(s), d)));
  return s;
}

// The sum of a super tile, of the sums of its tiles.
__device__ __forceinline__ float super_sum(const float *tiles) {
  float v[SUPER_TILES];
#pragma unroll
  for (int i = 0; i < SUPER_TILES; i++) v[i] = tiles[i];
#pragma unroll
  for (int d = SUPER_TILES / 2; d > 0; d /= 2)
#pragma unroll
    for (int i = 0; i < d; i++) v[i] = __fadd_rn(v[i], v[i + d]);
  return v[0];
}

extern "C" __global__ void __launch_bounds__(256)
train_gather(const unsigned long long *gate_sums, const unsigned long long *readout_sums,
             const unsigned long long *embed_sums, const int *exponents, unsigned *control, float *gradient,
             float *partials, float keep, float inverse, float clip, unsigned units, unsigned runs,
             unsigned readout_rows, unsigned embed_rows) {
  __shared__ float tiles[SUPER_TILES];
  __shared__ bool last;
  const Sizes s(units, readout_rows, embed_rows);
  const Gather gather = {gate_sums, readout_sums, embed_sums, exponents, keep, inverse, runs};
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const unsigned long long supers = (s.all + SUPER_TILE - 1) / SUPER_TILE;
  for (unsigned long long super = blockIdx.x; super < supers; super += gridDim.x) {
    for (unsigned tile = warp; tile < SUPER_TILES; tile += warps) {
      const unsigned long long first = super * SUPER_TILE + tile * TILE + 4 * lane;
      float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (unsigned r = 0; r < TILE; r += ROW) {
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
          if (first + r + k >= s.all) continue;
          const float g = gather.at(s, first + r + k);
          gradient[first + r + k] = g;
          v[k] = __fadd_rn(v[k], __fmul_rn(g, g));
        }
      }
      const float sum = tile_sum(v);
      if (lane == 0) tiles[tile] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) partials[super] = super_sum(tiles);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(control + CONTROL_TICKET, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  for (unsigned tile = warp; tile < SUPER_TILES && supers > 1; tile += warps) {
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (unsigned r = 0; r < TILE; r += ROW) {
#pragma unroll
      for (unsigned k = 0; k < 4; k++) {
        const unsigned i = tile * TILE + r + 4 * lane + k;
        if (i < supers) v[k] = __fadd_rn(v[k], __ldcg(partials + i));
      }
    }
    const float sum = tile_sum(v);
    if (lane == 0) tiles[tile] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const float norm = __fsqrt_rn(supers > 1 ? super_sum(tiles) : __ldcg(partials));
    float coefficient = 1.0f;
    if (clip > 0.0f) {
      coefficient = __fdiv_rn(clip, __fadd_rn(norm, 1e-6f));
      if (!(coefficient < 1.0f)) coefficient = 1.0f;
    }
    control[CONTROL_NORM] = __float_as_uint(norm);
    control[CONTROL_COEFFICIENT] = __float_as_uint(coefficient);
  }
  if (threadIdx.x < 4) control[CONTROL_GATES + threadIdx.x] = 0;
}
