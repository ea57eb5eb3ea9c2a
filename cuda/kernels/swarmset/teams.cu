// swarm_teams_8 and its like do what swarm_runs_8 and its like do for agents with consecutive ids. A team of WIDTH
// lanes has a run, a lane for each column. A warp reads whole stretches of rows of its runs into shared memory, so that
// memory is read in its order, and the next stretch is on its way while lanes add the rows of one. See swarmset.go.

#define STAGE 2048            // bytes of rows that a warp reads at once
#define RUNS (32 / WIDTH)     // of a warp
#define LOADS (STAGE / 16 / 32)
#define WARPS 8               // of a block at most

// The first agent that a team has still to read, and the rows that are left of its run.
struct Place {
  unsigned number, in, left; // the page, the index in it

  __device__ __forceinline__ Place of(unsigned lane) const {
    return Place{__shfl_sync(FULL, number, (int)lane), __shfl_sync(FULL, in, (int)lane),
                 __shfl_sync(FULL, left, (int)lane)};
  }

  // Goes on by some agents.
  __device__ __forceinline__ void skip(unsigned rows, unsigned per) {
    in += rows;
    if (in < per) return;
    number += in / per;
    in %= per;
  }
};

template <bool BF16> struct Stage {
  static const unsigned ELEMENT = BF16 ? 2 : 4, BYTES = WIDTH * ELEMENT, VECTORS = BYTES / 16;
  static const unsigned ROWS = STAGE / RUNS / BYTES; // of each run
  // From run to run in shared memory: teams use different banks.
  static const unsigned PITCH = ROWS * BYTES + BYTES;
  static const unsigned VOTES = (RUNS * ROWS + 31) / 32;

  uint4 row[LOADS];
  unsigned vote[VOTES];

  // Reads the next rows of all teams. A row that is not there is zeros without a vote.
  __device__ __forceinline__ void load(const Agents &s, unsigned votes, unsigned rows, const Place &place,
      unsigned lane) {
#pragma unroll
    for (unsigned j = 0; j < LOADS; j++) {
      const unsigned v = 32 * j + lane, run = v / (ROWS * VECTORS), k = v / VECTORS % ROWS;
      Place p = place.of(run * WIDTH);
      row[j] = make_uint4(0, 0, 0, 0);
      if (k >= p.left) continue;
      p.skip(k, s.per);
      const unsigned char *page = s.page(p.number);
      if (page) row[j] = *(const uint4 *)(page + rows + (u64)p.in * (2 * BYTES) + v % VECTORS * 16);
    }
#pragma unroll
    for (unsigned j = 0; j < VOTES; j++) {
      const unsigned v = 32 * j + lane, run = v / ROWS;
      Place p = place.of(run < RUNS ? run * WIDTH : 0);
      vote[j] = 0;
      if (run >= RUNS || v % ROWS >= p.left) continue;
      p.skip(v % ROWS, s.per);
      const unsigned char *page = s.page(p.number);
      if (page) vote[j] = page[votes + p.in];
    }
  }

  // Puts the rows into shared memory, and returns a bit for each row of the lane's run that has a vote.
  __device__ __forceinline__ unsigned store(unsigned char *shared, unsigned lane) const {
    __syncwarp(FULL); // all lanes have read what was there
#pragma unroll
    for (unsigned j = 0; j < LOADS; j++) {
      const unsigned v = 32 * j + lane, run = v / (ROWS * VECTORS), at = v % (ROWS * VECTORS);
      *(uint4 *)(shared + run * PITCH + at * 16) = row[j];
    }
    const unsigned mine = lane / WIDTH * ROWS;
    unsigned voted = 0;
#pragma unroll
    for (unsigned j = 0; j < VOTES; j++) {
      const unsigned some = __ballot_sync(FULL, vote[j] != 0);
      if (mine / 32 == j) voted = some >> mine % 32;
    }
    __syncwarp(FULL);
    return voted;
  }

  static __device__ __forceinline__ float value(const unsigned char *shared, unsigned k, unsigned lane) {
    const unsigned char *at = shared + lane / WIDTH * PITCH + k * BYTES + lane % WIDTH * ELEMENT;
    return BF16 ? __uint_as_float((unsigned)*(const unsigned short *)at << 16) : *(const float *)at;
  }
};

// Adds up the runs of the warp's teams, and stores the runs that exist. i is the number of the lane's run.
template <bool BF16>
__device__ __forceinline__ void add_runs(const Agents &s, unsigned votes, unsigned rows, Place place,
    unsigned char *shared, u64 i, bool exists, float *sums, unsigned *counts) {
  typedef Stage<BF16> S;
  const unsigned lane = threadIdx.x % 32, whole = WIDTH == 32 ? FULL : (1u << WIDTH % 32) - 1;
  float sum = 0.0f;
  unsigned added = 0;
  S stage;
  stage.load(s, votes, rows, place, lane);
  while (__ballot_sync(FULL, place.left > 0)) {
    const unsigned voted = stage.store(shared, lane);
    place.skip(S::ROWS, s.per);
    place.left = place.left > S::ROWS ? place.left - S::ROWS : 0;
    stage.load(s, votes, rows, place, lane);
#pragma unroll
    for (unsigned k = 0; k < S::ROWS; k++) {
      const float v = S::value(shared, k, lane);
      const unsigned finite = __ballot_sync(FULL, is_finite(v)) >> (lane / WIDTH * WIDTH);
      if ((voted >> k & 1) && (finite & whole) == whole) {
        sum = __fadd_rn(sum, v);
        added++;
      }
    }
  }
  if (!exists) return;
  sums[i * WIDTH + lane % WIDTH] = sum;
  if (lane % WIDTH == 0) counts[i] = added;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
     unsigned rows, unsigned bf16, const unsigned *nodes, const unsigned *firsts, unsigned count, float *sums,
     unsigned *counts) {
  __shared__ uint4 shared[WARPS][(STAGE + 32 * 4) / 16];
  const Agents s = {pages, page_bytes, frames, per};
  const unsigned runs = firsts[count], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u64 step = (u64)gridDim.x * (blockDim.x / 32) * RUNS;
  unsigned char *own = (unsigned char *)shared[warp];
  for (u64 first = ((u64)blockIdx.x * (blockDim.x / 32) + warp) * RUNS; first < runs; first += step) {
    const u64 i = first + lane / WIDTH;
    Place place = {0, 0, 0};
    if (i < runs) {
      const unsigned node = node_of(firsts, count, (unsigned)i), before = ((unsigned)i - firsts[node]) * RUN_ROWS;
      const unsigned left = nodes[2 * node + 1] - before;
      place.left = left < RUN_ROWS ? left : RUN_ROWS;
      place.skip(nodes[2 * node] + before, per);
    }
    if (bf16)
      add_runs<true>(s, votes, rows, place, own, i, i < runs, sums, counts);
    else
      add_runs<false>(s, votes, rows, place, own, i, i < runs, sums, counts);
  }
}
