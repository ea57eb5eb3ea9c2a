// language_merge merges the splits of attention in their order; see languageset.go. A warp has a head of a row.
extern "C" __global__ void __launch_bounds__(256)
language_merge(const float *parts, const unsigned *rows, unsigned first_row, unsigned count, unsigned heads,
               unsigned head, unsigned window, unsigned splits, float *y) {
  const unsigned lane = threadIdx.x % 32;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < (u64)count * heads; i += warps) {
    const unsigned position = rows[4 * (first_row + i / heads) + 1];
    const unsigned least = window && position >= window ? position - window + 1 : 0;
    const float *part = parts + i * splits * (head + PART_HEAD);
    for (unsigned c = 4 * lane; c < head; c += 128) {
      float largest = 0.0f, sum = 0.0f, o[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (unsigned split = least / SPLIT; split <= position / SPLIT; split++) {
        const float *of = part + split * (head + PART_HEAD);
        const float4 v = *(const float4 *)(of + PART_HEAD + c);
        if (split == least / SPLIT) {
          largest = of[0], sum = of[1], o[0] = v.x, o[1] = v.y, o[2] = v.z, o[3] = v.w;
          continue;
        }
        const float most = max32(of[0], largest);
        const float a = power_of_e(sub(largest, most)), b = power_of_e(sub(of[0], most));
        largest = most, sum = fma32(of[1], b, mul(sum, a));
        o[0] = fma32(v.x, b, mul(o[0], a)), o[1] = fma32(v.y, b, mul(o[1], a));
        o[2] = fma32(v.z, b, mul(o[2], a)), o[3] = fma32(v.w, b, mul(o[3], a));
      }
      *(float4 *)(y + ((first_row * (u64)heads) + i) * head + c) =
          make_float4(quo(o[0], sum), quo(o[1], sum), quo(o[2], sum), quo(o[3], sum));
    }
  }
}
