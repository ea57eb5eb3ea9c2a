// language_product_f32 and its like are products of weights and rows; see languageset.go. A warp has a few outputs of a
// few rows. Rows beyond the last are the last one again, and are not written.
template <int OUTPUTS, int ROWS>
__device__ __forceinline__ void product_of(const unsigned char *weights, const float *bias, const float *x, float *y,
                                           unsigned outputs, unsigned columns, unsigned count, unsigned flags) {
  const unsigned lane = threadIdx.x % 32, groups = (count + ROWS - 1) / ROWS;
  const u64 tiles = (u64)((outputs + OUTPUTS - 1) / OUTPUTS) * groups, stride = row_bytes(columns);
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 tile = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; tile < tiles; tile += warps) {
    const unsigned first = (unsigned)(tile / groups) * OUTPUTS, row = (unsigned)(tile % groups) * ROWS;
    const unsigned char *of[OUTPUTS];
    const float *from[ROWS];
    float s[OUTPUTS][ROWS][4];
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++) of[o] = weights + (first + o < outputs ? first + o : outputs - 1) * stride;
#pragma unroll
    for (int r = 0; r < ROWS; r++) from[r] = x + (u64)(row + r < count ? row + r : count - 1) * columns;
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++) {
#pragma unroll
      for (int r = 0; r < ROWS; r++) s[o][r][0] = s[o][r][1] = s[o][r][2] = s[o][r][3] = 0.0f;
    }
#pragma unroll(ROWS == 1 ? 4 : 1)
    for (unsigned c = 4 * lane; c < columns; c += 128) {
      float w[OUTPUTS][4];
#pragma unroll
      for (int o = 0; o < OUTPUTS; o++) load4(w[o], of[o], c);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float4 v = *(const float4 *)(from[r] + c);
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++) {
          s[o][r][0] = fma32(w[o][0], v.x, s[o][r][0]);
          s[o][r][1] = fma32(w[o][1], v.y, s[o][r][1]);
          s[o][r][2] = fma32(w[o][2], v.z, s[o][r][2]);
          s[o][r][3] = fma32(w[o][3], v.w, s[o][r][3]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int o = 0; o < OUTPUTS; o++) {
        float v = sum_of(s[o][r]);
        if (lane != 0 || first + o >= outputs || row + r >= count) continue;
        float *to = y + (u64)(row + r) * outputs + first + o;
        if (flags & PRODUCT_BIAS) v = add(v, bias[first + o]);
        if (flags & PRODUCT_ADD) v = add(*to, v);
        *to = v;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
KERNEL_NAME(const unsigned char *weights, const float *bias, const float *x, float *y, unsigned outputs,
            unsigned columns, unsigned count, unsigned flags) {
  if (count == 1) {
    product_of<2, 1>(weights, bias, x, y, outputs, columns, count, flags);
  } else {
    product_of<2, 4>(weights, bias, x, y, outputs, columns, count, flags);
  }
}
