// language_embed_f32 and its like look rows of the embedding up; see languageset.go.
extern "C" __global__ void __launch_bounds__(256)
KERNEL_NAME(const unsigned char *table, const unsigned *rows, float *x, unsigned columns, unsigned count) {
  const u64 quads = (u64)count * (columns / 4), threads = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += threads) {
    const u64 row = i / (columns / 4);
    float v[4];
    load4(v, table + rows[4 * row] * row_bytes(columns), (unsigned)(i - row * (columns / 4)) * 4);
    *(float4 *)(x + 4 * i) = make_float4(v[0], v[1], v[2], v[3]);
  }
}
