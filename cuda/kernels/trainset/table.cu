// train_table makes numbers of weights; see trainset.go.

#define BIAS_BITS (UNIT_BITS - 8) // what a bias has more than a weight: a product over 256

// The largest exponent, 20 at most, that weights and biases with these maxima can be scaled by.
__device__ __forceinline__ int scale_of(unsigned weight, unsigned bias, float most_weight, float most_bias) {
  const float w = __uint_as_float(weight), b = __uint_as_float(bias);
  int e = MOST_SCALE;
  while (e > LEAST_SCALE && (__fmul_rn(w, power_of_two(e)) > most_weight ||
                             __fmul_rn(b, power_of_two(e + BIAS_BITS)) > most_bias))
    e--;
  return e;
}

// The number of a value by 2^e.
__device__ __forceinline__ int fixed_of(double v, int e) {
  return __double2int_rn(v * (double)power_of_two(e));
}

__device__ __forceinline__ void logistic_of(unsigned *to, int e) {
  const float c[5] = {LOGISTIC_A0, LOGISTIC_A1, LOGISTIC_A2, LOGISTIC_B0, LOGISTIC_B1};
  const int by[5] = {3 * e, e, -e, 4 * e, 2 * e};
#pragma unroll
  for (int i = 0; i < 5; i++) to[i] = __float_as_uint(__fmul_rn(c[i], power_of_two(by[i])));
}

extern "C" __global__ void __launch_bounds__(256)
train_table(const float *weights, unsigned *control, unsigned *table, unsigned *readout, short *embed_numbers,
            int *exponents, unsigned *maxima, unsigned units, unsigned runs, unsigned readout_rows,
            unsigned embed_rows) {
  const Sizes s(units, readout_rows, embed_rows);
  const int w = scale_of(control[CONTROL_GATES], control[CONTROL_GATE_BIAS], MOST_GATE_WEIGHT, MOST_GATE_BIAS);
  const int wr = scale_of(control[CONTROL_READOUT], control[CONTROL_READOUT_BIAS], MOST_VOTE_WEIGHT, MOST_VOTE_BIAS);
  const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (first == 0) {
    logistic_of(table, w + BIAS_BITS);
    logistic_of(readout, wr + BIAS_BITS);
    control[CONTROL_GATE_SCALE] = (unsigned)w;
    control[CONTROL_READOUT_SCALE] = (unsigned)wr;
  }
  if (blockIdx.x == 0)
    for (unsigned run = threadIdx.x; run < runs; run += blockDim.x) {
      const unsigned most = maxima[run];
      if (most) {
        const int e = FIRST_EXPONENT - ((int)(most >> 23) - 127);
        exponents[run] = e > MOST_EXPONENT ? MOST_EXPONENT : e < -MOST_EXPONENT ? -MOST_EXPONENT : e;
      }
      maxima[run] = 0;
    }
  short *const gates = (short *)(table + TABLE_BIASES + 4 * units + MOST_CANDIDATES);
  short *const numbers = (short *)(readout + READOUT_HEAD + ((readout_rows + 3) & ~3u));
  const unsigned biases = 6 * s.square;
  for (unsigned long long i = first; i < s.all; i += (unsigned long long)gridDim.x * blockDim.x) {
    const float v = weights[i];
    if (i >= s.bias) {
      const float x = v > MOST_GRU_INPUT ? MOST_GRU_INPUT : v < -MOST_GRU_INPUT ? -MOST_GRU_INPUT : v;
      embed_numbers[i - s.bias] = (short)__float_as_uint(__fmaf_rn(x, (float)(1 << INPUT_BITS), 12582912.0f));
    } else if (i >= s.readout) {
      readout[READOUT_HEAD + i - s.readout] = (unsigned)fixed_of((double)v, wr + BIAS_BITS);
    } else if (i >= s.gates) {
      numbers[i - s.gates] = (short)fixed_of((double)v, wr);
    } else if (i >= biases) {
      const unsigned at = (unsigned)i - biases, which = at / units, j = at % units;
      if (which < 4) {
        const double bias = table_bias(weights + biases, units, which, j);
        table[TABLE_BIASES + 4 * j + which] = (unsigned)fixed_of(bias, w + BIAS_BITS);
      }
    } else {
      const unsigned at = (unsigned)i, input = at >= 3 * s.square, k = at - input * 3 * s.square;
      gates[k / units * 2 * units + input * units + k % units] = (short)fixed_of((double)table_weight(s, at, v), w);
    }
  }
}
