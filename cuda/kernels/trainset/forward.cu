// train_forward_h8 and its like step agents through the moments of a window; see trainset.go. A warp has 16 or 32
// agents from the first to the last moment. What a moment reads is read a moment ahead.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *table, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            float *carry, short *states, unsigned agents, unsigned moments) {
  __shared__ Shared shared;
  const Net net(&shared, table);
  const unsigned lane = threadIdx.x % 32, piece = lane % 4 * PIECE;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 tile = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; tile * TILE < agents; tile += warps) {
    const unsigned first = (unsigned)tile * TILE + lane / 4;
    unsigned length[ROWS], most = 0, hw[ROWS][PAIRS], xw[ROWS][PAIRS];
    float h[ROWS][PIECE];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      length[r] = first + 8 * r < agents ? lengths[first + 8 * r] : 0;
      if (length[r] > most) most = length[r];
    }
    // Row of the inputs at moment t, and the numbers of the moment, or else 0.
    const auto row_at = [&](int r, unsigned t) {
      const unsigned at = t * agents + first + 8 * r;
      return t >= length[r] ? 0 : embedded ? (unsigned)numbers[at] : at;
    };
    const auto read = [&](int r, unsigned t, unsigned row) {
      if (t < length[r]) {
        Numbers::load(xw[r], (const unsigned char *)(rows + (u64)row * HIDDEN + piece));
      } else {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) xw[r][k] = 0;
      }
    };
    unsigned next[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const unsigned n = first + 8 * r;
#pragma unroll
      for (int k = 0; k < PIECE; k++) h[r][k] = n < agents ? carry[(u64)n * HIDDEN + piece + k] : 0.0f;
#pragma unroll
      for (int k = 0; k < PAIRS; k++) hw[r][k] = pair_of(h[r] + 2 * k, AGENT_UNIT_SCALE);
      read(r, 0, row_at(r, 0));
      next[r] = row_at(r, 1);
    }
    most = warp_max(most);
    for (unsigned t = 0; t < most; t++) {
      Bytes a[ROWS][ALL];
      bytes_of_step(a, hw, xw);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        read(r, t + 1, next[r]);
        next[r] = row_at(r, t + 2);
      }
      float made[ROWS][PIECE];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int k = 0; k < PIECE; k++) made[r][k] = h[r][k];
      }
      net.step(made, a);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (t >= length[r]) continue;
#pragma unroll
        for (int k = 0; k < PIECE; k++) h[r][k] = made[r][k];
#pragma unroll
        for (int k = 0; k < PAIRS; k++) hw[r][k] = pair_of(h[r] + 2 * k, AGENT_UNIT_SCALE);
        const unsigned at = t * agents + first + 8 * r;
        Numbers::store((unsigned char *)(states + (u64)at * HIDDEN + piece), hw[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (length[r] == 0) continue;
#pragma unroll
      for (int k = 0; k < PIECE; k++) carry[(u64)(first + 8 * r) * HIDDEN + piece + k] = h[r][k];
    }
  }
}
