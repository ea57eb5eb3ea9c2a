// train_outer_h8 and its like add up the gradients of the weights of gates; see trainset.go. They are products of
// matrices over agents: of gradients of gates, and of units before and inputs. A block turns the numbers of 32 agents, of
// smaller classes of 64 or 128, around in shared memory, byte by byte. Each of its warps has sums of a moment for eight
// units and eight inputs of 32 agents in its registers, until the run or what sums can hold ends.

#define GROUPS COLUMNS             // of eight units and eight inputs
#define SLICES (4 / GROUPS)        // of 32 agents that a block takes at once, at most
#define LINES (6 * HIDDEN)         // of bytes: of gates r, z, n and the units' part of n, of units, and of inputs
#define LINE 12                    // words of a line: 8, and 4 that keep lanes apart
#define LOW (LINES * LINE)         // where lines of low bytes begin
#define MATRICES (HIDDEN == 8 ? 2 : 4 * CHUNKS) // of 16 lines of gates
#define LEAST_SHARE 4              // moments of a block: fewer cost more to add up at the end
#define MOST_ADDED 65536           // numbers of agents whose sums an int32 holds

// Four agents' pairs of numbers, of each two a line of high and a line of low bytes.
__device__ __forceinline__ void turn(unsigned *to, unsigned line, unsigned at, const unsigned *w) {
  const unsigned p0 = plus128(w[0]), p1 = plus128(w[1]), p2 = plus128(w[2]), p3 = plus128(w[3]);
  // of two agents: low, low, high, high of the first number, then of the second one
  const unsigned a = __byte_perm(p0, p1, 0x5140), b = __byte_perm(p2, p3, 0x5140);
  const unsigned c = __byte_perm(p0, p1, 0x7362), d = __byte_perm(p2, p3, 0x7362);
  unsigned *const own = to + line * LINE + at;
  own[0] = __byte_perm(a, b, 0x7632);
  own[LOW] = __byte_perm(a, b, 0x5410) ^ 0x80808080u;
  own[LINE] = __byte_perm(c, d, 0x7632);
  own[LOW + LINE] = __byte_perm(c, d, 0x5410) ^ 0x80808080u;
}

// A sum, by high bytes and by the others.
struct Sum {
  int high[4], middle[4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; i++) high[i] = middle[i] = 0;
  }
};

// Lines of 16 gates or 8 others by bytes, of a lane.
struct Lines {
  unsigned high[4], low[4];
};

struct Outer {
  Sum units[MATRICES], inputs[MATRICES];
  int biases[MATRICES][2][2]; // of lines g and g + 8: high, low

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
      units[m].clear(), inputs[m].clear();
      biases[m][0][0] = biases[m][0][1] = biases[m][1][0] = biases[m][1][1] = 0;
    }
  }

  static __device__ __forceinline__ void add_to(Sum *s, const Lines &a, const Lines &b) {
    mma32(s->high, s->high, a.high[0], a.high[1], a.high[2], a.high[3], b.high[0], b.high[1]);
    mma32(s->middle, s->middle, a.high[0], a.high[1], a.high[2], a.high[3], b.low[0], b.low[1]);
    mma32(s->middle, s->middle, a.low[0], a.low[1], a.low[2], a.low[3], b.high[0], b.high[1]);
  }

  // Whether lines of matrix m are gates whose products with units, or else with inputs, count.
  static __device__ __forceinline__ bool has_units(int m) { return HIDDEN == 8 || m / CHUNKS != 2; }
  static __device__ __forceinline__ bool has_inputs(int m) { return HIDDEN == 8 || m / CHUNKS != 3; }

  // Adds the products of 32 agents in shared memory.
  __device__ __forceinline__ void add(const unsigned *lines, unsigned group) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Lines other[2];
#pragma unroll
    for (unsigned k = 0; k < 2; k++) {
      const unsigned *own = lines + ((4 + k) * HIDDEN + group * 8 + g) * LINE + t;
#pragma unroll
      for (unsigned i = 0; i < 2; i++) other[k].high[i] = own[4 * i], other[k].low[i] = own[LOW + 4 * i];
    }
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
      Lines a;
#pragma unroll
      for (unsigned i = 0; i < 4; i++) {
        const unsigned *own = lines + (16 * m + g + i % 2 * 8) * LINE + t + i / 2 * 4;
        a.high[i] = own[0], a.low[i] = own[LOW];
      }
      if (group == 0) {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
          biases[m][i % 2][0] = __dp4a((int)a.high[i], 0x01010101, biases[m][i % 2][0]);
          biases[m][i % 2][1] = __dp4a((int)a.low[i], 0x01010101, biases[m][i % 2][1]);
        }
      }
      if (has_units(m)) add_to(&units[m], a, other[0]);
      if (has_inputs(m)) add_to(&inputs[m], a, other[1]);
    }
  }

  static __device__ __forceinline__ void give(unsigned long long *to, int high, int middle) {
    const long long v = (long long)high * 256 + middle;
    if (v) atomicAdd(to, (u64)v);
  }

  // Adds the sums to a run's.
  __device__ __forceinline__ void flush(unsigned long long *sums, unsigned group) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, square = HIDDEN * HIDDEN;
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
#pragma unroll
      for (unsigned i = 0; i < 4; i++) {
        const unsigned line = 16 * m + g + i / 2 * 8, gate = line / HIDDEN, unit = line % HIDDEN;
        const unsigned column = group * 8 + 2 * t + i % 2, at = unit * HIDDEN + column;
        if (gate != 2) give(sums + (gate == 3 ? 2 : gate) * square + at, units[m].high[i], units[m].middle[i]);
        if (gate != 3) give(sums + (3 + gate) * square + at, inputs[m].high[i], inputs[m].middle[i]);
      }
#pragma unroll
      for (unsigned i = 0; i < 2 && group == 0; i++) {
        const unsigned line = 16 * m + g + i * 8, gate = line / HIDDEN, unit = line % HIDDEN;
        unsigned long long *const to = sums + 6 * square + unit;
        if (gate != 3) give(to + gate * HIDDEN, biases[m][i][0], biases[m][i][1]);
        if (gate != 2) give(to + (3 + (gate == 3 ? 2 : gate)) * HIDDEN, biases[m][i][0], biases[m][i][1]);
      }
    }
    clear();
  }
};

extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const short *gates, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            const short *states, unsigned long long *sums, unsigned agents, unsigned moments) {
  __shared__ unsigned shared[SLICES * 2 * LOW];
  const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const unsigned slices = warps > GROUPS ? warps / GROUPS : 1, groups = warps > GROUPS ? GROUPS : warps;
  const unsigned at_once = 32 * slices, chunks = (agents + at_once - 1) / at_once;
  const u64 all = (u64)chunks * moments, share = (all + gridDim.x - 1) / gridDim.x;
  const u64 each = share > LEAST_SHARE ? share : LEAST_SHARE;
  const u64 begin = each * blockIdx.x, end = begin + each < all ? begin + each : all;
  const unsigned slice = warp / groups;
  Outer sum;
  sum.clear();
  // A block of less warps than groups goes through its agents several times.
  for (unsigned group = warp % groups, pass = 0; pass < GROUPS; group += groups, pass += groups) {
    unsigned added = 0;
    for (u64 i = begin; i < end; i++) {
      const unsigned t = (unsigned)(i / chunks), chunk = (unsigned)(i % chunks) * at_once;
      __syncthreads();
      // Each thread takes four numbers of four agents at a time.
      for (unsigned k = threadIdx.x; k < slices * LINES / 4 * 8; k += blockDim.x) {
        const unsigned four = k % 8, line = k / 8 % (LINES / 4) * 4, of = k / 8 / (LINES / 4);
        unsigned v[2][4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
          const unsigned n = chunk + of * 32 + four * 4 + j;
          const u64 at = (u64)t * agents + n;
          const short *from = 0;
          if (n < agents && t < lengths[n]) {
            if (line < 4 * HIDDEN)
              from = gates + at * 4 * HIDDEN + line;
            else if (line < 5 * HIDDEN)
              from = t > 0 ? states + (at - agents) * HIDDEN + line % HIDDEN : 0;
            else
              from = rows + (embedded ? (u64)(unsigned)numbers[at] : at) * HIDDEN + line % HIDDEN;
          }
          unsigned w[2] = {0, 0};
          if (from) Words<2>::load(w, (const unsigned char *)from);
          v[0][j] = w[0], v[1][j] = w[1];
        }
        unsigned *const to = shared + of * 2 * LOW;
        turn(to, line, four, v[0]);
        turn(to, line + 2, four, v[1]);
      }
      __syncthreads();
      if (group < GROUPS && slice < slices) sum.add(shared + slice * 2 * LOW, group);
      added += 32;
      const bool last = i + 1 == end || (i + 1) / chunks / RUN != t / RUN;
      if (!last && added < MOST_ADDED) continue;
      if (group < GROUPS && slice < slices) sum.flush(sums + (u64)(t / RUN) * (6 * HIDDEN * HIDDEN + 6 * HIDDEN), group);
      added = 0;
    }
  }
}
