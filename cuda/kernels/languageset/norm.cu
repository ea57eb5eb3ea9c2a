// language_norm is RMSNorm of rows; see languageset.go. A warp has a row.
extern "C" __global__ void __launch_bounds__(256)
language_norm(const float *x, const float *weights, const unsigned *picks, float *y, unsigned columns, unsigned count,
              unsigned picked, float epsilon) {
  const unsigned lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
  for (u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < count; row += warps) {
    const float *from = x + (picked ? (u64)picks[row] : row) * columns;
    const float by = norm_of(from, columns, epsilon);
    for (unsigned c = 4 * lane; c < columns; c += 128) {
      const float4 v = *(const float4 *)(from + c), w = *(const float4 *)(weights + c);
      *(float4 *)(y + row * columns + c) =
          make_float4(mul(mul(v.x, by), w.x), mul(mul(v.y, by), w.y), mul(mul(v.z, by), w.z), mul(mul(v.w, by), w.w));
    }
  }
}
