// language_rotate turns queries and keys, and stores keys and values in pages; see languageset.go. A warp has a head of
// a row.
extern "C" __global__ void __launch_bounds__(256)
language_rotate(float *q, const float *k, const float *v, const float *q_norm, const float *k_norm, const float *turns,
                const unsigned *rows, unsigned count, const unsigned *frames, unsigned char *pool,
                unsigned long long frame_bytes, unsigned positions, unsigned layer, unsigned heads, unsigned kv_heads,
                unsigned head, unsigned flags, float epsilon) {
  const unsigned lane = threadIdx.x % 32, all = heads + 2 * kv_heads, half = head / 2;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  const Pages pages = {pool, frames, frame_bytes, positions, layer, kv_heads * head};
  for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < (u64)count * all; i += warps) {
    const u64 row = i / all;
    const unsigned h = (unsigned)(i - row * all), position = rows[4 * row + 1], first = rows[4 * row + 2];
    if (h >= heads + kv_heads) { // values
      const unsigned at = (h - heads - kv_heads) * head;
      const float *from = v + row * kv_heads * head + at;
      float *to = pages.at(first, position, 1) + at;
      for (unsigned c = 4 * lane; c < head; c += 128) *(float4 *)(to + c) = *(const float4 *)(from + c);
      continue;
    }
    const bool query = h < heads;
    const float *from = query ? q + (row * heads + h) * head : k + (row * kv_heads + h - heads) * head;
    float *to = query ? q + (row * heads + h) * head : pages.at(first, position, 0) + (h - heads) * head;
    const float *weights = query ? q_norm : k_norm;
    const float by = flags & ROTATE_NORMS ? norm_of(from, head, epsilon) : 1.0f;
    const float *turn = turns + (u64)position * head;
    for (unsigned pair = lane; pair < half; pair += 32) {
      const unsigned a = flags & ROTATE_PAIRS ? 2 * pair : pair, b = flags & ROTATE_PAIRS ? a + 1 : pair + half;
      float x = from[a], y = from[b];
      if (flags & ROTATE_NORMS) x = mul(mul(x, by), weights[a]), y = mul(mul(y, by), weights[b]);
      const float c = turn[2 * pair], s = turn[2 * pair + 1];
      to[a] = sub(mul(x, c), mul(y, s));
      to[b] = add(mul(y, c), mul(x, s));
    }
  }
}
