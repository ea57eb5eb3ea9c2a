// train_maxima finds the largest weights; see trainset.go. Absolute values have the order of their bits.

// The bits of the smallest float32 that is not less than |v|.
__device__ __forceinline__ unsigned upper_bits(double v) {
  v = v < 0.0 ? -v : v;
  const float f = (float)v;
  return __float_as_uint(f) + ((double)f < v ? 1u : 0u);
}

extern "C" __global__ void __launch_bounds__(256)
train_maxima(const float *weights, unsigned *control, unsigned units, unsigned readout_rows) {
  const Sizes s(units, readout_rows, 0);
  unsigned most[4] = {0, 0, 0, 0};
  const unsigned biases = 6 * s.square;
  const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < s.bias; i += threads) {
    const float v = weights[i];
    unsigned bits = __float_as_uint(v) & 0x7fffffffu;
    unsigned which = i >= s.readout ? 3 : 2;
    if (i < s.gates) {
      const unsigned at = (unsigned)i;
      which = at < biases ? 0 : 1;
      if (at < biases)
        bits = __float_as_uint(table_weight(s, at, v)) & 0x7fffffffu;
      else if (at < biases + 4 * s.units)
        bits = upper_bits(table_bias(weights + biases, s.units, (at - biases) / s.units, (at - biases) % s.units));
      else
        bits = 0;
    }
#pragma unroll
    for (unsigned k = 0; k < 4; k++)
      if (k == which && bits > most[k]) most[k] = bits;
  }
#pragma unroll
  for (unsigned k = 0; k < 4; k++) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      const unsigned other = __shfl_xor_sync(0xffffffffu, most[k], d);
      most[k] = most[k] > other ? most[k] : other;
    }
    if (threadIdx.x % 32 == 0 && most[k]) atomicMax(control + CONTROL_GATES + k, most[k]);
  }
}
