// train_back_h8 and its like make the gradients of gates from the last moment to the first; see trainset.go. A warp has
// 16 or 32 agents through all moments. A lane has the gradients of the units of its pieces. They are 0 where an agent
// has no moment, because nothing asks it.

// What a moment reads of one agent: its units before and its inputs, and what its target asks: units, the first two
// gradients, and the weights of an item.
struct Moment {
  unsigned before[PAIRS], x[PAIRS], w[PAIRS], mask;
  int first, second;
};

// And what it reads before: the rows of its inputs and of its item, or else -1.
struct Rows {
  unsigned x;
  int item;
};


// The arguments of the kernel.
struct Way {
  const short *rows;
  const int *numbers;
  unsigned embedded;
  const unsigned *lengths;
  const short *states;
  const unsigned *readout;
  unsigned readout_rows;
  const int *items;
  unsigned candidates;
  const short *gradients;
  const unsigned *masks;
  float keep;
  const unsigned *control;
  const int *exponents;
  unsigned *maxima;
  short *gates;
  unsigned agents, moments;

  // Goes back through the moments, and returns how many gradients are cut off. PLAIN says that there are two candidates
  // and no embedding.
  template <bool PLAIN>
  __device__ __forceinline__ unsigned back_through(const Net &net, const Transposed &back) const {
    const unsigned lane = threadIdx.x % 32, piece = lane % 4 * PIECE, elements = candidates ? candidates : 1;
    const int w = (int)control[CONTROL_GATE_SCALE];
    const float asked = __fmul_rn(keep, power_of_two(-GRADIENT_BITS - (int)control[CONTROL_READOUT_SCALE]));
    const float unit = power_of_two(-w - 6);
    const short *const weights = (const short *)(readout + READOUT_HEAD + ((readout_rows + 3) & ~3u));
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    unsigned cut = 0, of_first[PAIRS], of_second[PAIRS]; // weights of the first two candidates
    Numbers::load(of_first, (const unsigned char *)(weights + piece));
    Numbers::load(of_second, (const unsigned char *)(weights + (candidates ? HIDDEN : 0) + piece));
    for (u64 tile = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; tile * TILE < agents; tile += warps) {
      const unsigned first = (unsigned)tile * TILE + lane / 4;
      unsigned length[ROWS], most = 0;
      float dh[ROWS][PIECE];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        length[r] = first + 8 * r < agents ? lengths[first + 8 * r] : 0;
        if (length[r] > most) most = length[r];
#pragma unroll
        for (int k = 0; k < PIECE; k++) dh[r][k] = 0.0f;
      }
      most = warp_max(most);
      for (unsigned t = moments; t > most;) {
        t--;
        const unsigned zeros[PAIRS] = {0};
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (first + 8 * r >= agents) continue;
          unsigned char *to = (unsigned char *)(gates + (u64)(t * agents + first + 8 * r) * (4 * HIDDEN) + piece);
#pragma unroll
          for (int gate = 0; gate < 4; gate++) Numbers::store(to + gate * 2 * HIDDEN, zeros);
        }
      }
      const auto rows_of = [&](int r, unsigned t) {
        const unsigned at = t * agents + first + 8 * r;
        Rows of = {at, 0};
        if (PLAIN) return of;
        if (t >= length[r]) return of;
        if (embedded) of.x = (unsigned)numbers[at];
        if (!candidates) of.item = items[at];
        return of;
      };
      const auto read = [&](int r, unsigned t, const Rows &of) {
        Moment m;
        const unsigned at = t * agents + first + 8 * r;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) m.before[k] = m.x[k] = m.w[k] = 0;
        m.mask = 0, m.first = m.second = 0;
        if (t >= length[r]) return m;
        if (PLAIN) { // agents of a lane are at constant distances
          const u64 from = t * agents + first;
          if (t > 0)
            Numbers::load(m.before, (const unsigned char *)(states + (from - agents + 8 * r) * HIDDEN + piece));
          Numbers::load(m.x, (const unsigned char *)(rows + (from + 8 * r) * HIDDEN + piece));
          m.mask = *(masks + from + 8 * r);
          const unsigned e = *((const unsigned *)gradients + from + 8 * r);
          m.first = (int)(short)e, m.second = (int)e >> 16;
          return m;
        }
        if (t > 0) Numbers::load(m.before, (const unsigned char *)(states + (u64)(at - agents) * HIDDEN + piece));
        Numbers::load(m.x, (const unsigned char *)(rows + (u64)of.x * HIDDEN + piece));
        if (of.item < 0) return m;
        m.mask = masks[at];
        const short *const e = gradients + (u64)at * elements;
        m.first = e[0];
        if (candidates)
          m.second = e[1];
        else
          Numbers::load(m.w, (const unsigned char *)(weights + (u64)(unsigned)of.item * HIDDEN + piece));
        return m;
      };
      Rows behind[ROWS];
      Moment next[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        next[r] = read(r, most ? most - 1 : 0, rows_of(r, most ? most - 1 : 0));
        behind[r] = rows_of(r, most > 1 ? most - 2 : 0);
      }
      unsigned largest = 0;
      for (unsigned t = most; t > 0;) {
        t--;
        const int s = exponents[t / RUN];
        const float scale = power_of_two(s), before_unit = power_of_two(8 - s - w);
        const unsigned most_bits = __float_as_uint(__fmul_rn((float)MOST_GRADIENT, power_of_two(-s)));
        Moment now[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          now[r] = next[r];
          if (t > 0) next[r] = read(r, t - 1, behind[r]);
          if (t > 1) behind[r] = rows_of(r, t - 2);
        }
        Bytes a[ROWS][ALL];
        {
          unsigned h[ROWS][PAIRS], x[ROWS][PAIRS];
#pragma unroll
          for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int k = 0; k < PAIRS; k++) h[r][k] = now[r].before[k], x[r][k] = now[r].x[k];
          }
          bytes_of_step(a, h, x);
        }
        // What targets ask.
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (!now[r].mask) continue;
          int sum[PIECE];
          if (PLAIN || candidates) {
#pragma unroll
            for (int k = 0; k < PIECE; k++)
              sum[k] = now[r].first * half_of(of_first, k) + now[r].second * half_of(of_second, k);
            const short *const e = gradients + (u64)(t * agents + first + 8 * r) * elements;
            for (unsigned c = 2; c < candidates && !PLAIN; c++) {
              unsigned v[PAIRS];
              Numbers::load(v, (const unsigned char *)(weights + c * HIDDEN + piece));
#pragma unroll
              for (int k = 0; k < PIECE; k++) sum[k] += e[c] * half_of(v, k);
            }
          } else {
#pragma unroll
            for (int k = 0; k < PIECE; k++) sum[k] = now[r].first * half_of(now[r].w, k);
          }
#pragma unroll
          for (int k = 0; k < PIECE; k++)
            if (now[r].mask >> (piece + k) & 1) dh[r][k] = __fadd_rn(dh[r][k], __fmul_rn((float)sum[k], asked));
        }
        unsigned made[ROWS][4][PAIRS];
#pragma unroll
        for (int m = 0; m < ROWS; m += 2) {
#pragma unroll
          for (int j = 0; j < COLUMNS; j++) {
            float sum[4][4];
            net.sums(sum, a, m, j);
            unsigned number[4][4], own = 0; // by gate; of two units of the first agent, then of the second one
            float made_of[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
              float *const d = &dh[m + i / 2][2 * j + i % 2];
              const float r = net.logistic(sum[0][i]), z = net.logistic(sum[1][i]);
              const float n = fma32(2.0f, net.logistic(fma32(r, sum[3][i], sum[2][i])), -1.0f);
              const float h = __fmul_rn((float)half_of(now[m + i / 2].before, 2 * j + i % 2), 1.0f / AGENT_UNIT_SCALE);
              const float rest = __fsub_rn(1.0f, z);
              float g[4];
              g[2] = __fmul_rn(__fmul_rn(__fmul_rn(*d, rest), __fsub_rn(1.0f, __fmul_rn(n, n))), 0.5f);
              g[3] = __fmul_rn(g[2], r);
              g[0] = __fmul_rn(__fmul_rn(g[2], __fmul_rn(sum[3][i], unit)), __fmul_rn(r, __fsub_rn(1.0f, r)));
              g[1] = __fmul_rn(__fmul_rn(*d, __fsub_rn(h, n)), __fmul_rn(z, rest));
              *d = __fmul_rn(*d, z);
#pragma unroll
              for (int k = 0; k < 4; k++) {
                const unsigned bits = __float_as_uint(g[k]) & 0x7fffffffu;
                if (bits > own) own = bits;
                // the same as number_of, where nothing is cut off
                number[k][i] = __float_as_uint(fma32(g[k], scale, 12582912.0f));
                made_of[k][i] = g[k];
              }
            }
            if (own > largest) largest = own;
            if (own > most_bits) { // or NaN
#pragma unroll
              for (int i = 0; i < 16; i++) {
                float v = __fmul_rn(made_of[i / 4][i % 4], scale);
                if (v > MOST_GRADIENT || v < -MOST_GRADIENT) cut++;
                number[i / 4][i % 4] = (unsigned)number_of(clamp32(v, (float)MOST_GRADIENT));
              }
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
              made[m][k][j] = __byte_perm(number[k][0], number[k][1], 0x5410);
              made[m + 1][k][j] = __byte_perm(number[k][2], number[k][3], 0x5410);
            }
          }
        }
#pragma unroll
        for (int m = 0; m < ROWS; m += 2) {
          Bytes u[GRADIENT_CHUNKS], v[GRADIENT_CHUNKS];
          bytes_of_gradients(u, made[m][0], made[m][1], made[m][3]);
          bytes_of_gradients(v, made[m + 1][0], made[m + 1][1], made[m + 1][3]);
#pragma unroll
          for (int j = 0; j < COLUMNS; j++) {
            int sum[4];
            back.product(sum, u, v, j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
              float *const d = &dh[m + i / 2][2 * j + i % 2];
              *d = __fadd_rn(*d, __fmul_rn((float)sum[i], before_unit));
            }
          }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (first + 8 * r >= agents) continue;
          unsigned char *to = (unsigned char *)(gates + ((u64)(t * agents + first) + 8 * r) * (4 * HIDDEN) + piece);
#pragma unroll
          for (int gate = 0; gate < 4; gate++) Numbers::store(to + gate * 2 * HIDDEN, made[r][gate]);
        }
        if (t % RUN == 0) {
          largest = warp_max(largest);
          if (lane == 0 && largest) atomicMax(maxima + t / RUN, largest);
          largest = 0;
        }
      }
    }
    return cut;
  }
};

extern "C" __global__ void __launch_bounds__(128, HIDDEN == 32 ? 3 : HIDDEN == 16 ? 5 : 4)
KERNEL_NAME(const unsigned *table, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            const short *states, const unsigned *readout, unsigned readout_rows, const int *items, unsigned candidates,
            const short *gradients, const unsigned *masks, float keep, const unsigned *control, const int *exponents,
            unsigned *maxima, short *gates, unsigned long long *totals, unsigned agents, unsigned moments) {
  __shared__ Shared shared;
  __shared__ Transposed back;
  back.open(table, 0);
  const Net net(&shared, table);
  const Way way = {rows, numbers, embedded, lengths, states, readout, readout_rows, items, candidates, gradients, masks,
      keep, control, exponents, maxima, gates, agents, moments};
  const bool plain = !embedded && candidates == 2;
  const unsigned cut = warp_sum(plain ? way.back_through<true>(net, back) : way.back_through<false>(net, back));
  if (threadIdx.x % 32 == 0 && cut) atomicAdd(totals + TOTAL_CUT, (u64)cut);
}
