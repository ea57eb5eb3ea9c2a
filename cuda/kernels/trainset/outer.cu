// train_outer_h8 and its like add up the gradients of the weights of gates; see trainset.go. They are products of
// matrices over agents: of gradients of gates, and of units before and inputs. A block turns the numbers of 64
// agents, of smaller classes of 128 or 256, around in shared memory, byte by byte, and reads the next ones meanwhile.
// Each of its warps has sums of a moment for 16 units of some gates, and eight units and eight inputs, in its
// registers, until the run or what sums can hold ends.

#define GROUPS COLUMNS        // of eight units and eight inputs
#define ROLES (2 * GROUPS)    // of warps that share agents: a group, and a half of the gates' units or gates
#define SLICES (8 / ROLES)    // of agents that a block takes at once, at most
#define AGENTS 64             // of a slice
#define LINES (6 * HIDDEN)    // of bytes: of gates r, z, n and the units' part of n, of units, and of inputs
#define LINE (AGENTS / 4 + 4) // words of a line; the last four are not used
#define LOW (LINES * LINE)    // where lines of low bytes begin
#define WHOLE 256             // threads of a whole block
#define MATRICES (HIDDEN == 8 ? 1 : 2 * CHUNKS) // of 16 lines of gates that a role has
#define SUMS (HIDDEN == 8 ? 2 : 3 * CHUNKS)
#define LEAST_SHARE 4    // moments of a block: fewer cost more to add up at the end
#define MOST_ADDED 32768 // numbers of agents whose sums an int32 holds

// Where word at of a line is, such that the lanes of a warp read and write different banks.
__device__ __forceinline__ unsigned place(unsigned line, unsigned at) {
  return line * LINE + (at ^ (HIDDEN == 8 ? line / 8 % 4 * 4 : line / 8 % 8 * 2));
}

// Four agents' pairs of numbers, of each two a line of high and a line of low bytes.
__device__ __forceinline__ void turn(unsigned *to, const unsigned *w) {
  const unsigned p0 = plus128(w[0]), p1 = plus128(w[2]), p2 = plus128(w[4]), p3 = plus128(w[6]);
  // of two agents: low, low, high, high of the first number, then of the second one
  const unsigned a = __byte_perm(p0, p1, 0x5140), b = __byte_perm(p2, p3, 0x5140);
  const unsigned c = __byte_perm(p0, p1, 0x7362), d = __byte_perm(p2, p3, 0x7362);
  to[0] = __byte_perm(a, b, 0x7632);
  to[LOW] = __byte_perm(a, b, 0x5410) ^ 0x80808080u;
  to[LINE] = __byte_perm(c, d, 0x7632);
  to[LOW + LINE] = __byte_perm(c, d, 0x5410) ^ 0x80808080u;
}

// Sums of products of high bytes, of high and low ones, and of low ones.
struct Sum {
  int high[4], middle[4], low[4];
};

// Lines of 16 gates or 8 others by bytes, of a lane.
struct Lines {
  unsigned high[4], low[4];
};

// What a warp adds up. half is the half of the units that it has of each gate; of 16 units: 0 the gates r and the
// units' part of n, 1 the gates z and n; of 8: 0 the gates r and z, 1 both parts of n.
struct Outer {
  Sum sum[SUMS];
  int biases[MATRICES][2]; // of lines g and g + 8

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sum[s].high[i] = sum[s].middle[i] = sum[s].low[i] = 0;
    }
#pragma unroll
    for (int m = 0; m < MATRICES; m++) biases[m][0] = biases[m][1] = 0;
  }

  // The first line of a matrix.
  static __device__ __forceinline__ unsigned line_of(int m, unsigned half) {
    if (HIDDEN == 8) return 16 * half;
    if (HIDDEN == 16) return m == 0 ? 16 * half : 48 - 16 * half;
    return HIDDEN * m + 16 * half;
  }

  // Of sum s: its matrix, and whether its other factor are inputs.
  static __device__ __forceinline__ int matrix_of(int s) {
    return HIDDEN == 8 ? 0 : s < 2 * CHUNKS ? s / 2 : s - CHUNKS;
  }
  static __device__ __forceinline__ bool has_inputs(int s, unsigned half) {
    if (HIDDEN == 16 && s == 2) return half == 1;
    return s < 4 ? s % 2 == 1 : s == 4;
  }

  // Adds the products of the agents of a slice.
  __device__ __forceinline__ void add(const unsigned *lines, unsigned group, unsigned half) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (unsigned at = t; at < AGENTS / 4; at += 8) {
      Lines other[2], either; // either is of 16 units alone
#pragma unroll
      for (unsigned k = 0; k < 2; k++) {
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
          const unsigned *own = lines + place((4 + k) * HIDDEN + group * 8 + g, at + 4 * i);
          other[k].high[i] = own[0], other[k].low[i] = own[LOW];
        }
      }
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        either.high[i] = half ? other[1].high[i] : other[0].high[i];
        either.low[i] = half ? other[1].low[i] : other[0].low[i];
      }
#pragma unroll
      for (int m = 0; m < MATRICES; m++) {
        Lines a;
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
          const unsigned *own = lines + place(line_of(m, half) + g + i % 2 * 8, at + i / 2 * 4);
          a.high[i] = own[0], a.low[i] = own[LOW];
        }
        if (group == 0) {
#pragma unroll
          for (unsigned i = 0; i < 4; i++) {
            const int high = dot4(a.high[i], 0x01010101, 0);
            biases[m][i % 2] = dot4(a.low[i], 0x01010101, biases[m][i % 2]) + 256 * high;
          }
        }
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
          if (matrix_of(s) != m) continue;
          const Lines &b = HIDDEN == 16 && s == 2 ? either : other[has_inputs(s, 0)];
          Sum *const to = &sum[s];
          mma32(to->high, to->high, a.high[0], a.high[1], a.high[2], a.high[3], b.high[0], b.high[1]);
          mma32(to->middle, to->middle, a.high[0], a.high[1], a.high[2], a.high[3], b.low[0], b.low[1]);
          mma32(to->middle, to->middle, a.low[0], a.low[1], a.low[2], a.low[3], b.high[0], b.high[1]);
          mma32(to->low, to->low, a.low[0], a.low[1], a.low[2], a.low[3], b.low[0], b.low[1]);
        }
      }
    }
  }

  static __device__ __forceinline__ void give(unsigned long long *to, long long v) {
    if (v) atomicAdd(to, (u64)v);
  }

  // Adds the sums to a run's.
  __device__ __forceinline__ void flush(unsigned long long *sums, unsigned group, unsigned half) {
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, square = HIDDEN * HIDDEN;
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
      const bool inputs = has_inputs(s, half);
#pragma unroll
      for (unsigned i = 0; i < 4; i++) {
        const unsigned line = line_of(matrix_of(s), half) + g + i / 2 * 8, gate = line / HIDDEN;
        if (gate == (inputs ? 3 : 2)) continue;
        const unsigned row = (inputs ? 3 : 0) + (gate == 3 ? 2 : gate);
        give(sums + row * square + line % HIDDEN * HIDDEN + group * 8 + 2 * t + i % 2,
            (long long)sum[s].high[i] * 65536 + (long long)sum[s].middle[i] * 256 + sum[s].low[i]);
      }
    }
#pragma unroll
    for (int m = 0; m < MATRICES && group == 0; m++) {
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        const unsigned line = line_of(m, half) + g + i * 8, gate = line / HIDDEN;
        const long long v = biases[m][i];
        unsigned long long *const to = sums + 6 * square + line % HIDDEN;
        if (gate != 3) give(to + gate * HIDDEN, v);
        if (gate != 2) give(to + (3 + (gate == 3 ? 2 : gate)) * HIDDEN, v);
      }
    }
    clear();
  }
};

extern "C" __global__ void __launch_bounds__(256, 2)
KERNEL_NAME(const short *gates, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            const short *states, unsigned long long *sums, unsigned agents, unsigned moments) {
  __shared__ unsigned shared[SLICES * 2 * LOW];
  const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const unsigned slices = warps > ROLES ? warps / ROLES : 1, roles = warps > ROLES ? ROLES : warps;
  const unsigned at_once = AGENTS * slices, chunks = (agents + at_once - 1) / at_once;
  const u64 all = (u64)chunks * moments, share = (all + gridDim.x - 1) / gridDim.x;
  const u64 each = share > LEAST_SHARE ? share : LEAST_SHARE;
  const u64 begin = each * blockIdx.x, end = begin + each < all ? begin + each : all;
  if (begin >= end) return;
  const unsigned slice = warp / roles;
  // A task has four numbers of four agents, of the gates or of the others: units before, then inputs. Lanes beside each
  // other read numbers beside each other, of a row of at most 16 tasks.
  // of is how many slices the tasks have.
  const auto four_of = [&](unsigned k, unsigned fours, unsigned of) { // agents
    const unsigned row = fours < 16 ? fours : 16;
    return k / row % (AGENTS / 4 * of);
  };
  const auto line_of = [&](unsigned k, unsigned fours, unsigned of) {
    const unsigned row = fours < 16 ? fours : 16;
    return (k % row + k / row / (AGENTS / 4 * of) * row) * 4;
  };
  const auto read_gates = [&](unsigned k, unsigned of, unsigned t, unsigned chunk, unsigned (*v)[2]) {
    const unsigned n = chunk * at_once + four_of(k, HIDDEN, of) * 4;
    const short *const from = gates + (u64)(t * agents + n) * (4 * HIDDEN) + line_of(k, HIDDEN, of);
    const bool all_four = n + 3 < agents;
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
      v[j][0] = v[j][1] = 0;
      if (all_four || n + j < agents) Words<2>::load(v[j], (const unsigned char *)(from + j * 4 * HIDDEN));
    }
  };
  const auto read_others = [&](unsigned k, unsigned of, unsigned t, unsigned chunk, unsigned (*v)[2]) {
    const unsigned n = chunk * at_once + four_of(k, HIDDEN / 2, of) * 4, line = line_of(k, HIDDEN / 2, of);
    const unsigned at = t * agents + n;
    const bool input = line >= HIDDEN, none = !input && t == 0;
    const short *const from = (input ? rows : states) + line % HIDDEN;
#pragma unroll
    for (unsigned j = 0; j < 4; j++) v[j][0] = v[j][1] = 0;
    if (none) return;
    if (!(input && embedded)) {
      const short *const first = from + (u64)(input ? at : at - agents) * HIDDEN;
      const bool all_four = n + 3 < agents;
#pragma unroll
      for (unsigned j = 0; j < 4; j++)
        if (all_four || n + j < agents) Words<2>::load(v[j], (const unsigned char *)(first + j * HIDDEN));
      return;
    }
#pragma unroll
    for (unsigned j = 0; j < 4; j++)
      if (n + j < agents && t < lengths[n + j])
        Words<2>::load(v[j], (const unsigned char *)(from + (u64)(unsigned)numbers[at + j] * HIDDEN));
  };
  const auto write = [&](unsigned four, unsigned line, const unsigned (*v)[2]) {
    unsigned *const to = shared + four / (AGENTS / 4) * 2 * LOW + place(line, four % (AGENTS / 4));
    turn(to, &v[0][0]);
    turn(to + 2 * LINE, &v[0][1]);
  };
  const auto write_gates = [&](unsigned k, unsigned of, const unsigned (*v)[2]) {
    write(four_of(k, HIDDEN, of), line_of(k, HIDDEN, of), v);
  };
  const auto write_others = [&](unsigned k, unsigned of, const unsigned (*v)[2]) {
    write(four_of(k, HIDDEN / 2, of), 4 * HIDDEN + line_of(k, HIDDEN / 2, of), v);
  };
  const unsigned gate_tasks = slices * (AGENTS / 4) * HIDDEN, other_tasks = gate_tasks / 2;
  // A block of WHOLE threads has two tasks of gates and one of the others for each, which it reads ahead.
  const bool whole = blockDim.x == WHOLE;
  Outer sum;
  sum.clear();
  // A block of less warps than roles goes through its agents several times.
  for (unsigned role = warp % roles, pass = 0; pass < ROLES; role += roles, pass += roles) {
    const bool works = role < ROLES && slice < slices;
    const unsigned group = role / 2, half = role % 2;
    unsigned added = 0, t = (unsigned)(begin / chunks), chunk = (unsigned)(begin % chunks);
    unsigned next[3][4][2];
    const auto read_ahead = [&]() {
      read_gates(threadIdx.x, SLICES, t, chunk, next[0]);
      read_gates(threadIdx.x + WHOLE, SLICES, t, chunk, next[1]);
      if (HIDDEN < 32) read_others(threadIdx.x, SLICES, t, chunk, next[2]); // there are no registers for it
    };
    if (whole) read_ahead();
    for (u64 i = begin; i < end; i++) {
      const unsigned now = t, chunk_of = chunk;
      __syncthreads();
      if (whole) {
        write_gates(threadIdx.x, SLICES, next[0]);
        write_gates(threadIdx.x + WHOLE, SLICES, next[1]);
        if (HIDDEN == 32) read_others(threadIdx.x, SLICES, now, chunk_of, next[2]);
        write_others(threadIdx.x, SLICES, next[2]);
      }
      for (unsigned k = threadIdx.x; k < gate_tasks && !whole; k += blockDim.x) {
        read_gates(k, slices, now, chunk_of, next[0]);
        write_gates(k, slices, next[0]);
      }
      for (unsigned k = threadIdx.x; k < other_tasks && !whole; k += blockDim.x) {
        read_others(k, slices, now, chunk_of, next[2]);
        write_others(k, slices, next[2]);
      }
      __syncthreads();
      if (++chunk == chunks) chunk = 0, t++;
      if (whole && i + 1 < end) read_ahead();
      if (works) sum.add(shared + slice * 2 * LOW, group, half);
      added += AGENTS;
      if (i + 1 < end && t / RUN == now / RUN && added < MOST_ADDED) continue;
      if (works) sum.flush(sums + (u64)(now / RUN) * (6 * HIDDEN * HIDDEN + 6 * HIDDEN), group, half);
      added = 0;
    }
  }
}
