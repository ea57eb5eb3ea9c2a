// language_attend is attention over a split of the positions of an agent; see languageset.go. A warp has a head of a
// row and a split. Its lanes have positions first, and then columns.
extern "C" __global__ void __launch_bounds__(128)
language_attend(const float *q, const unsigned *rows, unsigned first_row, unsigned count, const unsigned *frames,
                unsigned char *pool, unsigned long long frame_bytes, unsigned positions, unsigned layer, unsigned heads,
                unsigned kv_heads, unsigned head, unsigned window, float scale, unsigned splits, float *parts) {
  __shared__ float shared_likely[4][SPLIT];
  __shared__ u64 shared_places[4][SPLIT]; // of keys, from the start of the pool
  const unsigned lane = threadIdx.x % 32;
  float *likely = shared_likely[threadIdx.x / 32];
  u64 *places = shared_places[threadIdx.x / 32];
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32), all = (u64)count * heads * splits;
  const Pages pages = {pool, frames, frame_bytes, positions, layer, kv_heads * head};
  for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < all; i += warps) {
    const unsigned split = (unsigned)(i % splits), h = (unsigned)(i / splits % heads);
    const u64 row = first_row + i / splits / heads;
    const unsigned position = rows[4 * row + 1], first = rows[4 * row + 2];
    const unsigned least = window && position >= window ? position - window + 1 : 0;
    // The positions from .. to-1 of the split are seen.
    const unsigned from = split * SPLIT > least ? split * SPLIT : least;
    const unsigned to = (split + 1) * SPLIT <= position ? (split + 1) * SPLIT : position + 1;
    if (from >= to) continue;
    const float *query = q + (row * heads + h) * head;
    const unsigned column = h / (heads / kv_heads) * head;
    float largest = __uint_as_float(0xff800000u);
    for (unsigned j = split * SPLIT + lane; j < to; j += 32) {
      if (j < from) continue;
      const float *key = pages.at(first, j, 0) + column;
      places[j % SPLIT] = (u64)(key - (const float *)pool);
      float s[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
      for (unsigned c = 0; c < head; c += 8) {
        const float4 a = *(const float4 *)(key + c), b = *(const float4 *)(key + c + 4);
        const float4 x = *(const float4 *)(query + c), y = *(const float4 *)(query + c + 4);
        s[0] = fma32(x.x, a.x, s[0]), s[1] = fma32(x.y, a.y, s[1]);
        s[2] = fma32(x.z, a.z, s[2]), s[3] = fma32(x.w, a.w, s[3]);
        s[4] = fma32(y.x, b.x, s[4]), s[5] = fma32(y.y, b.y, s[5]);
        s[6] = fma32(y.z, b.z, s[6]), s[7] = fma32(y.w, b.w, s[7]);
      }
      const float sum = add(add(add(s[0], s[4]), add(s[2], s[6])), add(add(s[1], s[5]), add(s[3], s[7])));
      const float v = mul(sum, scale);
      likely[j % SPLIT] = v;
      largest = max32(v, largest);
    }
    largest = warp_max(largest);
    float sum = 0.0f;
    for (unsigned j = split * SPLIT + lane; j < to; j += 32) {
      if (j < from) continue;
      const float v = power_of_e(sub(likely[j % SPLIT], largest));
      likely[j % SPLIT] = v;
      sum = add(sum, v);
    }
    sum = warp_sum(sum);
    __syncwarp(WARP);
    float *part = parts + i * (head + PART_HEAD);
    if (lane == 0) part[0] = largest, part[1] = sum;
    const float *values = (const float *)pool + (u64)positions * kv_heads * head; // of the keys at the same place
    for (unsigned c = 4 * lane; c < head; c += 128) {
      float o[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
      for (unsigned j = from; j < to; j++) {
        const float4 v = *(const float4 *)(values + places[j % SPLIT] + c);
        const float e = likely[j % SPLIT];
        o[0] = fma32(e, v.x, o[0]), o[1] = fma32(e, v.y, o[1]), o[2] = fma32(e, v.z, o[2]), o[3] = fma32(e, v.w, o[3]);
      }
      *(float4 *)(part + PART_HEAD + c) = make_float4(o[0], o[1], o[2], o[3]);
    }
    __syncwarp(WARP); // likely is written again
  }
}
