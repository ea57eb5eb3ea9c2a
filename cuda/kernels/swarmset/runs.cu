// swarm_runs_8 and its like add up the embeddings of the runs of nodes, in the order of the agents; see swarmset.go. A
// thread has a run: its sums stay in registers, nothing is exchanged, and rows of several agents are on their way at
// once, since rows that must not be added are read all the same. With a thread for each column of a run, and 16 rows on
// their way, runs of 16-bit values took twice as long on an H200, and runs of 32 float32 too.

#define FLIGHT (WIDTH <= 8 ? 8 : 4) // rows that are on their way at once

struct Variables {
  unsigned votes, rows; // offsets in a page
};

// N words of a row, whose address is a multiple of their size or of 16 bytes.
template <int N> struct Row {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const uint4 v = *(const uint4 *)(from + 4 * k);
      to[k] = v.x, to[k + 1] = v.y, to[k + 2] = v.z, to[k + 3] = v.w;
    }
  }
};

template <> struct Row<1> {
  static __device__ __forceinline__ void load(unsigned *to, const unsigned char *from) {
    to[0] = *(const unsigned *)from;
  }
};

// Adds the embeddings of WIDTH elements of agents with consecutive ids from first on, or of the agents in order from
// place first on, to sum, and returns how many are in it.
template <bool BF16>
__device__ __forceinline__ unsigned add_rows(const Agents &s, const Variables &at, const unsigned *order,
    unsigned first, unsigned n, float *sum) {
  const int words = WIDTH * (BF16 ? 2 : 4) / 4, stride = (WIDTH == 1 ? 1 : 2 * WIDTH) * (BF16 ? 2 : 4);
  unsigned added = 0;
  for (unsigned k = 0; k < n; k += FLIGHT) {
    unsigned row[FLIGHT][words], vote[FLIGHT];
#pragma unroll
    for (unsigned j = 0; j < FLIGHT; j++) {
      const unsigned place = first + (k + j < n ? k + j : k), agent = order ? order[place] : place;
      const unsigned number = agent / s.per, in = agent - number * s.per;
      const unsigned char *page = s.page(number);
      const bool there = page && k + j < n;
      if (!page) page = s.pages;
      Row<words>::load(row[j], page + at.rows + (u64)in * stride);
      vote[j] = page[at.votes + in];
      if (!there) vote[j] = 0;
    }
#pragma unroll
    for (int j = 0; j < FLIGHT; j++) {
      float v[WIDTH];
      bool counts = vote[j] != 0;
#pragma unroll
      for (int d = 0; d < WIDTH; d++) {
        const unsigned word = row[j][BF16 ? d / 2 : d];
        v[d] = __uint_as_float(!BF16 ? word : d % 2 ? word & 0xffff0000u : word << 16);
        counts = counts && is_finite(v[d]);
      }
      if (!counts) continue;
#pragma unroll
      for (int d = 0; d < WIDTH; d++) sum[d] = __fadd_rn(sum[d], v[d]);
      added++;
    }
  }
  return added;
}

__device__ __forceinline__ void add_one(unsigned word, unsigned vote, float *sum, unsigned *added) {
  const float v = __uint_as_float(word);
  if (vote == 0 || !is_finite(v)) return;
  *sum = __fadd_rn(*sum, v);
  ++*added;
}

// add_rows of consecutive ids and one float32 each: the values and votes of 16 agents are read by five loads, so that
// every sector that is fetched is used at once.
__device__ __forceinline__ unsigned add_words(const Agents &s, const Variables &at, unsigned first, unsigned n,
    float *sum) {
  unsigned added = 0;
  while (n > 0) {
    const unsigned number = first / s.per, in = first - number * s.per;
    const unsigned char *page = s.page(number);
    unsigned m = s.per - in < n ? s.per - in : n; // in this page
    first += m, n -= m;
    if (!page) continue;
    const unsigned *values = (const unsigned *)(page + at.rows) + in;
    const unsigned char *votes = page + at.votes + in;
    for (; m > 0 && (u64)votes % 16; m--) add_one(*values++, *votes++, sum, &added);
    // Both begin at a multiple of 16 agents of the page now, or there are none left.
    for (; m >= 16; m -= 16, values += 16, votes += 16) {
      unsigned v[16], w[4];
      Row<16>::load(v, (const unsigned char *)values);
      Row<4>::load(w, votes);
#pragma unroll
      for (int k = 0; k < 16; k++) add_one(v[k], w[k / 4] >> 8 * (k % 4) & 255u, sum, &added);
    }
    for (; m > 0; m--) add_one(*values++, *votes++, sum, &added);
  }
  return added;
}

// The same of values that follow one another, of agents that all have votes.
__device__ __forceinline__ unsigned add_values(const unsigned *values, unsigned n, float *sum) {
  unsigned added = 0;
  for (; n >= 16; n -= 16, values += 16) {
    unsigned v[16];
    Row<16>::load(v, (const unsigned char *)values);
#pragma unroll
    for (int k = 0; k < 16; k++) add_one(v[k], 1, sum, &added);
  }
  for (; n > 0; n--) add_one(*values++, 1, sum, &added);
  return added;
}

template <bool BF16>
__device__ __forceinline__ void add_run(const Agents &s, const Variables &at, const unsigned *order, unsigned first,
    unsigned n, bool embeddings, float *to, unsigned *added) {
  float sum[WIDTH];
#pragma unroll
  for (int d = 0; d < WIDTH; d++) sum[d] = 0.0f;
  if (WIDTH == 1 && !order)
    *added = add_words(s, at, first, n, sum);
  else if (WIDTH == 1 && embeddings)
    *added = add_values(order + first, n, sum);
  else
    *added = add_rows<BF16>(s, at, order, first, n, sum);
#pragma unroll
  for (int d = 0; d < WIDTH; d++) to[d] = sum[d];
}

extern "C" __global__ void __launch_bounds__(256)
NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
     unsigned rows, unsigned bf16, const unsigned *order, unsigned ordered, const unsigned *nodes,
     const unsigned *firsts, unsigned count, float *sums, unsigned *counts) {
  const Agents s = {pages, page_bytes, frames, per};
  const Variables at = {votes, rows};
  if (ordered == ORDERED_NOT) order = 0;
  const unsigned runs = firsts[count], step = gridDim.x * blockDim.x;
  for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < runs; i += step) {
    const unsigned node = node_of(firsts, count, (unsigned)i), before = ((unsigned)i - firsts[node]) * RUN_ROWS;
    const unsigned first = nodes[2 * node] + before, left = nodes[2 * node + 1] - before;
    const unsigned n = left < RUN_ROWS ? left : RUN_ROWS;
    if (WIDTH > 1 && bf16)
      add_run<(WIDTH > 1)>(s, at, order, first, n, ordered == ORDERED_EMBEDDINGS, sums + i * WIDTH, counts + i);
    else
      add_run<false>(s, at, order, first, n, ordered == ORDERED_EMBEDDINGS, sums + i * WIDTH, counts + i);
  }
}
