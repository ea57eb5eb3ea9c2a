// train_score_h8 and its like make predictions, losses and the gradients of the readout; see trainset.go. Four lanes
// have an agent and go through the moments of a run; each has the units of a piece. They add up the gradients of a row
// of the readout, with items until the row changes, and else of two candidates at a time.

#define LEAST_PROBABILITY 5.9604644775390625e-8f // 2^-24

// Bits of the units of a piece that dropout leaves in.
__device__ __forceinline__ unsigned units_left(u64 seed, unsigned sequence, unsigned moment, unsigned step,
    unsigned drop, unsigned piece) {
  unsigned c0 = sequence, c1 = moment, c2 = piece / 8, c3 = step;
  unsigned key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32), left = 0;
  for (int i = 0; i < 10; i++) {
    const u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(p1 >> 32) ^ c1 ^ key0;
    c1 = (unsigned)p1;
    c2 = (unsigned)(p0 >> 32) ^ c3 ^ key1;
    c3 = (unsigned)p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
#pragma unroll
  for (unsigned k = 0; k < PIECE; k++) {
    const unsigned at = (piece + k) % 8, word = at < 4 ? (at < 2 ? c0 : c1) : (at < 6 ? c2 : c3);
    if ((word >> 16 * (k % 2) & 0xffffu) >= drop) left |= 1u << k;
  }
  return left;
}

__device__ __forceinline__ int sum_of_four(int v) {
  v += (int)__shfl_xor_sync(FULL, (unsigned)v, 1);
  return v + (int)__shfl_xor_sync(FULL, (unsigned)v, 2);
}

// Numbers of a piece, by bytes.
struct Piece4 {
  Bytes b[(PIECE + 3) / 4];

  __device__ __forceinline__ void set(const unsigned *words) {
#pragma unroll
    for (int c = 0; c < (PIECE + 3) / 4; c++)
      b[c] = bytes_of(plus128(words[2 * c]), PIECE == 2 ? 0x00800080u : plus128(words[PIECE == 2 ? 0 : 2 * c + 1]));
  }
};

// The sums of gradients of a row of the readout that a lane has.
struct RowSums {
  long long units[PIECE], bias;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < PIECE; k++) units[k] = 0;
    bias = 0;
  }
  __device__ __forceinline__ void add(int number, const unsigned *h) {
#pragma unroll
    for (int k = 0; k < PIECE; k++) units[k] += (long long)number * half_of(h, k);
    bias += number;
  }
  __device__ __forceinline__ void flush(unsigned long long *sums, unsigned readout_rows, unsigned row, unsigned piece) {
#pragma unroll
    for (int k = 0; k < PIECE; k++)
      if (units[k]) atomicAdd(sums + (u64)row * HIDDEN + piece + k, (u64)units[k]);
    if (piece == 0 && bias) atomicAdd(sums + (u64)readout_rows * HIDDEN + row, (u64)bias);
    clear();
  }
  // Adds up what the eight agents of a warp have; the lanes of the first one have the sums.
  __device__ __forceinline__ void add_agents() {
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
#pragma unroll
      for (int k = 0; k < PIECE; k++) units[k] += other(units[k], d);
      bias += other(bias, d);
    }
    if (threadIdx.x % 32 >= 4) clear();
  }
  static __device__ __forceinline__ long long other(long long v, int d) {
    const unsigned low = __shfl_xor_sync(FULL, (unsigned)v, d), high = __shfl_xor_sync(FULL, (unsigned)((u64)v >> 32), d);
    return (long long)((u64)high << 32 | low);
  }
};

extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *readout, const short *states, const int *items, const int *targets,
            const unsigned *lengths, unsigned candidates, unsigned readout_rows, unsigned train, unsigned drop, float keep,
            unsigned long long seed, unsigned step, unsigned first, const unsigned *control, short *gradients,
            unsigned *masks, float *predictions, unsigned long long *sums, unsigned long long *totals,
            unsigned agents, unsigned moments) {
  // Of the agents of a block: logits, then by what they are below the largest one, and what that is the share of.
  __shared__ float logits[32][AGENT_MOST_CANDIDATES], shares[32][AGENT_MOST_CANDIDATES];
  const unsigned lane = threadIdx.x % 32, part = lane % 4, piece = part * PIECE, elements = candidates ? candidates : 1;
  const int *const biases = (const int *)(readout + READOUT_HEAD);
  const short *const weights = (const short *)(biases + ((readout_rows + 3) & ~3u));
  const float unit = power_of_two(-(int)control[CONTROL_READOUT_SCALE] - 6);
  Logistic logistic;
  logistic.load((const float *)readout);
  float *const logit = logits[threadIdx.x / 4], *const share = shares[threadIdx.x / 4];
  const auto weights_of = [&](unsigned row) {
    unsigned v[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) v[k] = *(const unsigned *)(weights + (u64)row * HIDDEN + piece + 2 * k);
    Piece4 b;
    b.set(v);
    return b;
  };
  const Piece4 ahead[2] = {weights_of(0), weights_of(candidates ? 1 : 0)}; // of the first two candidates
  const unsigned runs = (moments + RUN - 1) / RUN;
  const u64 all = (u64)runs * agents, warps = (u64)gridDim.x * (blockDim.x / 32);
  u64 loss = 0;
  for (unsigned pair = 0; pair == 0 || (train && pair < candidates); pair += 2) {
    RowSums of[2];
    of[0].clear(), of[1].clear();
    for (u64 i = ((u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 8; i < all; i += warps * 8) {
      const u64 own = i + lane / 4;
      const bool there = own < all;
      const unsigned run = !there ? 0 : own >> 32 ? (unsigned)(own / agents) : (unsigned)own / agents;
      const unsigned n = there ? (unsigned)(own - (u64)run * agents) : 0;
      const unsigned length = there && !train ? lengths[n] : 0;
      int held = -1; // the row that of[0] has sums of
      for (unsigned t = run * RUN; t < (run + 1) * RUN; t++) { // all lanes go through all moments of a run
        const bool is = there && t < moments;
        const u64 at = (u64)t * agents + n;
        const int target = is ? targets[at] : -1;
        int row = candidates || !is ? 0 : items[at];
        const bool goes = train ? target >= 0 : is && t < length && row >= 0;
        if (!goes) row = 0;
        unsigned h[PAIRS], mask = 0xffffffffu;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) h[k] = 0;
        if (goes) Numbers::load(h, (const unsigned char *)(states + at * HIDDEN + piece));
        if (train && drop) {
          const unsigned left = units_left(seed, first + n, t, step, drop, piece);
#pragma unroll
          for (int k = 0; k < PAIRS; k++)
            h[k] &= (left >> 2 * k & 1 ? 0xffffu : 0) | (left >> (2 * k + 1) & 1 ? 0xffff0000u : 0);
          mask = left << piece;
          mask |= __shfl_xor_sync(FULL, mask, 1);
          mask |= __shfl_xor_sync(FULL, mask, 2);
        }
        if (pair > 0) { // the gradients are there
          if (goes) {
            of[0].add(gradients[at * elements + pair], h);
            if (pair + 1 < candidates) of[1].add(gradients[at * elements + pair + 1], h);
          }
          continue;
        }
        Piece4 a;
        a.set(h);
        const auto logit_of = [&](unsigned c, const Piece4 &b) {
          int middle = 0, high = 0;
#pragma unroll
          for (int k = 0; k < (PIECE + 3) / 4; k++) {
            high = __dp4a((int)a.b[k].high, (int)b.b[k].high, high);
            middle = __dp4a((int)a.b[k].high, (int)b.b[k].low, middle);
            middle = __dp4a((int)a.b[k].low, (int)b.b[k].high, middle);
          }
          const int sum = sum_of_four(middle + 256 * high), bias = biases[row + c];
          return train ? fma32((float)sum, keep, (float)bias) : (float)(sum + bias);
        };
        int number[2] = {0, 0};
        float lost = 0.0f;
        if (!candidates) {
          float p = logistic(logit_of(0, weights_of((unsigned)row)));
          if (target >= 0) lost = -log32(max32(target ? p : __fsub_rn(1.0f, p), LEAST_PROBABILITY));
          if (!train && goes && part == 0) predictions[at] = p;
          if (target == 1) p = __fsub_rn(p, 1.0f);
          if (goes) number[0] = number_of(__fmul_rn(p, (float)(1 << GRADIENT_BITS)));
          if (train && is && part == 0) gradients[at] = (short)number[0];
        } else {
          // Lane c % 4 does what is to do for candidate c.
          float most = logit_of(0, ahead[0]);
          if (part == 0) logit[0] = most;
          for (unsigned c = 1; c < candidates; c++) {
            const float x = c == 1 ? logit_of(1, ahead[1]) : logit_of(c, weights_of(c));
            if (part == c % 4) logit[c] = x;
            most = max32(most, x);
          }
          for (unsigned c = part; c < candidates; c += 4) {
            const float below = min32(__fmul_rn(__fsub_rn(most, logit[c]), unit), 80.0f);
            logit[c] = below, share[c] = __fdiv_rn(1.0f, exp32(below));
          }
          __syncwarp(FULL);
          float total = 0.0f;
          for (unsigned c = 0; c < candidates; c++) total = __fadd_rn(total, share[c]);
          if (target >= 0) lost = __fadd_rn(log32(total), logit[target]);
          __syncwarp(FULL);
          for (unsigned c = part; c < candidates; c += 4) {
            float p = __fdiv_rn(share[c], total);
            if (!train) {
              if (goes) predictions[at * elements + c] = p;
              continue;
            }
            if ((unsigned)target == c) p = __fsub_rn(p, 1.0f);
            const int e = goes ? number_of(__fmul_rn(p, (float)(1 << GRADIENT_BITS))) : 0;
            if (is) gradients[at * elements + c] = (short)e;
            if (c < 2) number[0] = e;
          }
          const int mine = number[0];
          number[0] = (int)__shfl_sync(FULL, (unsigned)mine, (int)(lane & ~3u));
          number[1] = (int)__shfl_sync(FULL, (unsigned)mine, (int)(lane & ~3u) + 1);
        }
        if (goes && target >= 0 && part == 0) loss += (u64)__float2ll_rn(__fmul_rn(lost, (float)(1 << LOSS_BITS)));
        if (!train) continue;
        if (is && part == 0) masks[at] = goes ? mask : 0;
        if (!goes) continue;
        if (!candidates && row != held) {
          if (held >= 0) of[0].flush(sums, readout_rows, (unsigned)held, piece);
          held = row;
        }
        of[0].add(number[0], h);
        if (candidates) of[1].add(number[1], h);
      }
      if (!candidates && held >= 0) of[0].flush(sums, readout_rows, (unsigned)held, piece);
    }
    if (!candidates || !train) continue;
#pragma unroll
    for (unsigned c = 0; c < 2; c++) {
      of[c].add_agents();
      if (pair + c < candidates) of[c].flush(sums, readout_rows, pair + c, piece);
    }
    __syncwarp(FULL);
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) loss += (u64)RowSums::other((long long)loss, d);
  if (lane == 0 && loss) atomicAdd(totals + TOTAL_LOSS, loss);
}
