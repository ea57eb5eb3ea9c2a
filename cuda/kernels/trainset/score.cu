// train_score_h8 and its like make predictions, losses and the gradients of the readout; see trainset.go. Four lanes
// have an agent and go through the moments of a run, four at a time: each has the units of a piece of all four, and
// makes the loss of one. They add up the gradients of a row of the readout, with items until the row changes, and
// else of two candidates at a time.

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

// Of four values a lane, the sum over its four lanes of the value with the number of the lane.
__device__ __forceinline__ int sum_of_four(const int *v) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const int a = (odd ? v[1] : v[0]) + (int)__shfl_xor_sync(FULL, (unsigned)(odd ? v[0] : v[1]), 1);
  const int b = (odd ? v[3] : v[2]) + (int)__shfl_xor_sync(FULL, (unsigned)(odd ? v[2] : v[3]), 1);
  return (upper ? b : a) + (int)__shfl_xor_sync(FULL, (unsigned)(upper ? a : b), 2);
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
    const unsigned low = __shfl_xor_sync(FULL, (unsigned)v, d);
    const unsigned high = __shfl_xor_sync(FULL, (unsigned)((u64)v >> 32), d);
    return (long long)((u64)high << 32 | low);
  }
};

extern "C" __global__ void __launch_bounds__(128, HIDDEN == 32 ? 4 : 6)
KERNEL_NAME(const unsigned *readout, const short *states, const int *items, const int *targets,
            const unsigned *lengths, unsigned candidates, unsigned readout_rows, unsigned train, unsigned drop,
            float keep, unsigned long long seed, unsigned step, unsigned first, const unsigned *control,
            short *gradients, unsigned *masks, float *predictions, unsigned long long *sums, unsigned long long *totals,
            unsigned agents, unsigned moments) {
  // Of a moment: logits, then by what they are below the largest one; and what that is the share of.
  __shared__ float logits[128][AGENT_MOST_CANDIDATES + 1], shares[128][AGENT_MOST_CANDIDATES + 1];
  const unsigned lane = threadIdx.x % 32, part = lane % 4, piece = part * PIECE, elements = candidates ? candidates : 1;
  const int *const biases = (const int *)(readout + READOUT_HEAD);
  const short *const weights = (const short *)(biases + ((readout_rows + 3) & ~3u));
  const float unit = power_of_two(-(int)control[CONTROL_READOUT_SCALE] - 6);
  Logistic logistic;
  logistic.load((const float *)readout);
  float *const logit = logits[threadIdx.x], *const share = shares[threadIdx.x];
  const auto weights_of = [&](unsigned row) {
    unsigned v[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) v[k] = *(const unsigned *)(weights + (u64)row * HIDDEN + piece + 2 * k);
    Piece4 b;
    b.set(v);
    return b;
  };
  const auto product = [&](const unsigned *h, const Piece4 &b) {
    Piece4 a;
    a.set(h);
    int middle = 0, high = 0;
#pragma unroll
    for (int k = 0; k < (PIECE + 3) / 4; k++) {
      high = dot4(a.b[k].high, b.b[k].high, high);
      middle = dot4(a.b[k].high, b.b[k].low, middle);
      middle = dot4(a.b[k].low, b.b[k].high, middle);
    }
    return middle + 256 * high;
  };
  const Piece4 ahead[2] = {weights_of(0), weights_of(candidates ? 1 : 0)}; // of the first two candidates
  const unsigned runs = (moments + RUN - 1) / RUN;
  const unsigned all = runs * agents, warps = gridDim.x * (blockDim.x / 32);
  u64 loss = 0;
  for (unsigned pair = 0; pair == 0 || (train && pair < candidates); pair += 2) {
    RowSums of[2];
    of[0].clear(), of[1].clear();
    for (u64 i = ((u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 8; i < all; i += (u64)warps * 8) {
      const unsigned own = (unsigned)i + lane / 4;
      const bool there = own < all;
      const unsigned run = there ? own / agents : 0, n = there ? own - run * agents : 0;
      const unsigned length = there && !train ? lengths[n] : 0;
      int held = -1; // the row whose sums of[0] has
      for (unsigned first_of = run * RUN; first_of < (run + 1) * RUN; first_of += 4) { // in all lanes as often
        // Of the lane's own moment.
        const unsigned t = first_of + part, at = t * agents + n;
        const bool is = there && t < moments;
        const int target = is ? targets[at] : -1;
        int row = candidates || !is ? 0 : items[at];
        const bool goes = train ? target >= 0 : is && t < length && row >= 0;
        if (!goes) row = 0;
        // Of the four moments.
        unsigned h[4][PAIRS], mask = 0xffffffffu;
        bool all_go[4];
        int rows[4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
          const unsigned from = (lane & ~3u) + j;
          all_go[j] = __shfl_sync(FULL, (unsigned)goes, (int)from) != 0;
          rows[j] = candidates ? 0 : (int)__shfl_sync(FULL, (unsigned)row, (int)from);
#pragma unroll
          for (int k = 0; k < PAIRS; k++) h[j][k] = 0;
          if (all_go[j])
            Numbers::load(h[j], (const unsigned char *)(states + (u64)((first_of + j) * agents + n) * HIDDEN + piece));
        }
        if (train && drop) {
#pragma unroll
          for (unsigned j = 0; j < 4; j++) {
            const unsigned left = units_left(seed, first + n, first_of + j, step, drop, piece);
#pragma unroll
            for (int k = 0; k < PAIRS; k++)
              h[j][k] &= (left >> 2 * k & 1 ? 0xffffu : 0) | (left >> (2 * k + 1) & 1 ? 0xffff0000u : 0);
            unsigned bits = left << piece;
            bits |= __shfl_xor_sync(FULL, bits, 1);
            bits |= __shfl_xor_sync(FULL, bits, 2);
            if (j == part) mask = bits;
          }
        }
        int numbers[2] = {0, 0};
        if (pair > 0) { // the gradients are there
          if (goes) numbers[0] = gradients[(u64)at * elements + pair];
          if (goes && pair + 1 < candidates) numbers[1] = gradients[(u64)at * elements + pair + 1];
        } else {
          const auto sum_of = [&](unsigned c) { // the logit of the lane's own moment, before its bias
            int sums_of[4];
            if (candidates) {
              const Piece4 b = c == 0 ? ahead[0] : c == 1 ? ahead[1] : weights_of(c);
#pragma unroll
              for (unsigned j = 0; j < 4; j++) sums_of[j] = product(h[j], b);
            } else {
#pragma unroll
              for (unsigned j = 0; j < 4; j++) sums_of[j] = product(h[j], weights_of((unsigned)rows[j]));
            }
            return sum_of_four(sums_of);
          };
          if (train && candidates == 2) { // as below, where the share of the larger one is 1
            const float a = fma32((float)sum_of(0), keep, (float)biases[0]);
            const float b = fma32((float)sum_of(1), keep, (float)biases[1]);
            const bool second = b > a, largest = second == (target == 1); // the target is the larger one
            const float below = min32(__fmul_rn(__fsub_rn(second ? b : a, second ? a : b), unit), 80.0f);
            const float share_of = __fdiv_rn(1.0f, exp32(below)), total = __fadd_rn(1.0f, share_of);
            const float most = __fdiv_rn(1.0f, total), least = __fdiv_rn(share_of, total);
            const float one = (float)(1 << GRADIENT_BITS);
            const int of_most = number_of(__fmul_rn(largest ? __fsub_rn(most, 1.0f) : most, one));
            const int of_least = number_of(__fmul_rn(largest ? least : __fsub_rn(least, 1.0f), one));
            if (goes) {
              const float lost = __fadd_rn(log32(total), largest ? 0.0f : below);
              loss += (u64)__float2ll_rn(__fmul_rn(lost, (float)(1 << LOSS_BITS)));
              numbers[0] = second ? of_least : of_most, numbers[1] = second ? of_most : of_least;
            }
            if (is) ((unsigned *)gradients)[at] = ((unsigned)numbers[0] & 0xffffu) | (unsigned)numbers[1] << 16;
          } else {
            for (unsigned c = 0; c < elements; c++) {
              const int sum = sum_of(c), bias = biases[row + c];
              logit[c] = train ? fma32((float)sum, keep, (float)bias) : (float)(sum + bias);
            }
            float lost = 0.0f, total = 0.0f;
            if (candidates) {
              float most = logit[0];
              for (unsigned c = 1; c < candidates; c++) most = max32(most, logit[c]);
              for (unsigned c = 0; c < candidates; c++) {
                logit[c] = min32(__fmul_rn(__fsub_rn(most, logit[c]), unit), 80.0f);
                share[c] = __fdiv_rn(1.0f, exp32(logit[c]));
                total = __fadd_rn(total, share[c]);
              }
              if (target >= 0) lost = __fadd_rn(log32(total), logit[target]);
            } else {
              share[0] = logistic(logit[0]);
              if (target >= 0) lost = -log32(max32(target ? share[0] : __fsub_rn(1.0f, share[0]), LEAST_PROBABILITY));
            }
            if (goes && target >= 0) loss += (u64)__float2ll_rn(__fmul_rn(lost, (float)(1 << LOSS_BITS)));
            for (unsigned c = 0; c < elements; c++) {
              float p = candidates ? __fdiv_rn(share[c], total) : share[0];
              if (!train) {
                if (goes) predictions[(u64)at * elements + c] = p;
                continue;
              }
              if (candidates ? (unsigned)target == c : target == 1) p = __fsub_rn(p, 1.0f);
              const int e = goes ? number_of(__fmul_rn(p, (float)(1 << GRADIENT_BITS))) : 0;
              if (is) gradients[(u64)at * elements + c] = (short)e;
              if (c == 0) numbers[0] = e;
              if (c == 1) numbers[1] = e;
            }
          }
          if (train && is) masks[at] = goes ? mask : 0;
        }
        if (!train) continue;
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
          const int from = (int)((lane & ~3u) + j);
          const int e = (int)__shfl_sync(FULL, (unsigned)numbers[0], from);
          if (!candidates) {
            if (!all_go[j]) continue;
            if (rows[j] != held && held >= 0) of[0].flush(sums, readout_rows, (unsigned)held, piece);
            held = rows[j];
          } else {
            of[1].add((int)__shfl_sync(FULL, (unsigned)numbers[1], from), h[j]);
          }
          of[0].add(e, h[j]);
        }
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
