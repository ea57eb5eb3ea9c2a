// train_embed_h8 and its like add up the gradients of rows of the embedding; see trainset.go. A warp takes the agents
// of a tile at one moment.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *table, const short *gates, const int *numbers, const unsigned *lengths,
            const unsigned *control, const int *exponents, unsigned long long *sums, unsigned long long *totals,
            unsigned agents, unsigned moments) {
  __shared__ Transposed inputs;
  inputs.open(table, 1);
  __syncthreads();
  const unsigned lane = threadIdx.x % 32, piece = lane % 4 * PIECE, tiles = (agents + TILE - 1) / TILE;
  const int w = (int)control[CONTROL_GATE_SCALE];
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  unsigned cut = 0;
  for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < (u64)tiles * moments; i += warps) {
    const unsigned t = (unsigned)(i / tiles), first = (unsigned)(i % tiles) * TILE + lane / 4;
    const float unit = power_of_two(5 - exponents[t / RUN] - w);
    Bytes a[ROWS][GRADIENT_CHUNKS];
    unsigned long long *to[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const unsigned n = first + 8 * r;
      const u64 at = (u64)t * agents + n;
      unsigned v[3][PAIRS];
      to[r] = 0;
#pragma unroll
      for (int k = 0; k < 3 * PAIRS; k++) v[k / PAIRS][k % PAIRS] = 0;
      if (n < agents && t < lengths[n]) {
        to[r] = sums + (u64)(unsigned)numbers[at] * HIDDEN + piece;
#pragma unroll
        for (int gate = 0; gate < 3; gate++)
          Numbers::load(v[gate], (const unsigned char *)(gates + (at * 4 + gate) * HIDDEN + piece));
      }
      bytes_of_gradients(a[r], v[0], v[1], v[2]);
    }
#pragma unroll
    for (int m = 0; m < ROWS; m += 2) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        int sum[4];
        inputs.product(sum, a[m], a[m + 1], j);
#pragma unroll
        for (int k = 0; k < 4; k++) {
          if (!to[m + k / 2]) continue;
          float v = __fmul_rn((float)sum[k], unit);
          if (v > MOST_INPUT || v < -MOST_INPUT) cut++;
          v = __fmul_rn(clamp32(v, (float)MOST_INPUT), (float)(1 << EMBED_BITS));
          const long long number = __float2ll_rn(v);
          if (number) atomicAdd(to[m + k / 2] + 2 * j + k % 2, (u64)number);
        }
      }
    }
  }
  cut = warp_sum(cut);
  if (lane == 0 && cut) atomicAdd(totals + TOTAL_CUT, (u64)cut);
}
