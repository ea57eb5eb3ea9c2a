// The frame of a custom cell on a grid. A thread makes agents of a band of layers, one behind the other: rows of a grid
// of two dimensions, and planes of one of three. It reads each layer once, one layer before it needs it, and keeps what
// the agents of three layers add to the reductions. Reductions join west and east of a row, then the agent between
// them, then rows, then planes, from the first to the last. Package latticetest has that in Go.
#pragma once

// The column of an agent, and the columns beside it.
struct Columns {
  unsigned west, here, east;
  bool has_west, has_east;

  __device__ __forceinline__ Columns(const Grid &grid, unsigned x) {
    here = x;
    west = (x > 0 ? x : grid.width) - 1;
    east = x + 1 < grid.width ? x + 1 : 0;
    has_west = LATTICE_PERIODIC || x > 0;
    has_east = LATTICE_PERIODIC || x + 1 < grid.width;
  }
};

// Three agents of a row. Where there is no row, they add nothing.
template <class Cell> struct Line {
  typename Cell::Heard west, here, east;
  bool there;

  __device__ __forceinline__ void read(const Row &row, const unsigned *offsets, const Columns &c, bool sides) {
    there = true;
    here = Cell::hear(row, offsets, c.here);
    if (!sides) return;
    west = Cell::hear(row, offsets, c.west);
    east = Cell::hear(row, offsets, c.east);
  }
  __device__ __forceinline__ typename Cell::Part one() const {
    return there ? Cell::Part::of(here) : Cell::Part::none();
  }
  __device__ __forceinline__ typename Cell::Part pair(const Columns &c) const {
    typename Cell::Part sum = there && c.has_west ? Cell::Part::of(west) : Cell::Part::none();
    sum.join(there && c.has_east ? Cell::Part::of(east) : Cell::Part::none());
    return sum;
  }
  __device__ __forceinline__ typename Cell::Part all(const Columns &c) const {
    typename Cell::Part sum = pair(c);
    sum.join(one());
    return sum;
  }
};

// A layer near an agent, as it was read: a line, or three of a plane.
template <class Cell> struct Near {
  Line<Cell> here;
#if LATTICE_DIMENSIONS == 3
  Line<Cell> above, below;
#endif

  // Reads layer number at, from -1 to the number of layers.
  __device__ __forceinline__ void read(const Generation &g, const Grid &grid, const unsigned *offsets, const Columns &c,
                                       unsigned y, int at) {
    const int layers = LATTICE_DIMENSIONS == 3 ? grid.depth : grid.height;
    here.there = false;
#if LATTICE_DIMENSIONS == 3
    above.there = below.there = false;
#endif
    if (at < 0 || at >= layers) {
      if (!LATTICE_PERIODIC) return;
      at = at < 0 ? layers - 1 : 0;
    }
#if LATTICE_DIMENSIONS == 3
    const unsigned first = (unsigned)at * grid.height;
    here.read(row_of(g, grid, first + y), offsets, c, true);
    if (y > 0 || LATTICE_PERIODIC)
      above.read(row_of(g, grid, first + (y > 0 ? y : grid.height) - 1), offsets, c, !LATTICE_FACES);
    if (y + 1 < grid.height || LATTICE_PERIODIC)
      below.read(row_of(g, grid, first + (y + 1 < grid.height ? y + 1 : 0)), offsets, c, !LATTICE_FACES);
#else
    here.read(row_of(g, grid, (unsigned)at), offsets, c, true);
#endif
  }
};

// What a layer adds for its own agent (ring), and for the agent of the layer before or behind it (side).
template <class Cell> struct Layer {
  typename Cell::Part ring, side;

  __device__ __forceinline__ void reduce(const Near<Cell> &near, const Columns &c) {
#if LATTICE_DIMENSIONS == 3 && LATTICE_FACES
    ring = near.above.one();
    ring.join(near.here.pair(c));
    ring.join(near.below.one());
    side = near.here.one();
#elif LATTICE_DIMENSIONS == 3
    ring = near.above.all(c);
    side = ring;
    const typename Cell::Part below = near.below.all(c);
    ring.join(near.here.pair(c));
    ring.join(below);
    side.join(near.here.all(c));
    side.join(below);
#elif LATTICE_FACES
    ring = near.here.pair(c);
    side = near.here.one();
#else
    ring = near.here.pair(c);
    side = near.here.all(c);
#endif
  }
};

// The number of neighbours of an agent.
__device__ __forceinline__ unsigned neighbours_of(const Grid &grid, const Columns &c, unsigned y, unsigned layer,
                                                  unsigned layers) {
  const bool p = LATTICE_PERIODIC;
  const unsigned columns = 1 + c.has_west + c.has_east, rows = 1 + (p || layer > 0) + (p || layer + 1 < layers);
#if LATTICE_DIMENSIONS == 3
  const unsigned beside = 1 + (p || y > 0) + (p || y + 1 < grid.height);
#else
  const unsigned beside = 1;
#endif
  return LATTICE_FACES ? columns + rows + beside - 3 : columns * rows * beside - 1;
}

template <class Cell>
__device__ __forceinline__ void step_lattice(const Generation &old, const Generation &made, const unsigned *layout,
                                             const unsigned *words, const Grid &grid, unsigned band,
                                             unsigned long long tick, unsigned count, unsigned long long *tally) {
  __shared__ unsigned sums[LATTICE_CANDIDATES];
  if (threadIdx.x < LATTICE_CANDIDATES) sums[threadIdx.x] = 0;
  __syncthreads();
  unsigned offsets[LATTICE_VARS];
  for (unsigned i = 0; i < LATTICE_VARS; i++) offsets[i] = layout[2 + i];
  const unsigned group = layout[0]; // agents of one
  const typename Cell::Params params = Cell::params(words);
  const unsigned layers = LATTICE_DIMENSIONS == 3 ? grid.depth : grid.height, bands = (layers + band - 1) / band;
#if LATTICE_DIMENSIONS == 3
  // A block has a tile of 32 columns and of as many rows as the block has warps.
  const unsigned tall = blockDim.x / 32, wide = (grid.width + 31) / 32, high = (grid.height + tall - 1) / tall;
  const unsigned long long work = (unsigned long long)wide * high * bands * blockDim.x;
#else
  const unsigned long long work = (unsigned long long)grid.width * bands;
#endif
  const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
  Counts counts = {0, 0};
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < work; i += stride) {
#if LATTICE_DIMENSIONS == 3
    const unsigned tile = (unsigned)(i / blockDim.x);
    const unsigned x = tile % wide * 32 + threadIdx.x % 32, y = tile / wide % high * tall + threadIdx.x / 32;
    const unsigned first = tile / wide / high * band;
    if (x >= grid.width || y >= grid.height) continue;
#else
    const unsigned x = (unsigned)(i % grid.width), y = 0, first = (unsigned)(i / grid.width) * band;
#endif
    const unsigned last = layers - first < band ? layers : first + band;
    const Columns columns(grid, x);
    const bool leads = x % group == 0; // its group
    Near<Cell> near;
    Layer<Cell> before, here, behind;
    near.read(old, grid, offsets, columns, y, (int)first - 1);
    before.reduce(near, columns);
    near.read(old, grid, offsets, columns, y, (int)first);
    here.reduce(near, columns);
    typename Cell::Heard own = near.here.here;
    near.read(old, grid, offsets, columns, y, (int)first + 1);
#pragma unroll 1 // by 3, NVRTC makes code of it that steps layers behind the last one
    for (unsigned layer = first; layer < last; layer++) {
      Near<Cell> ahead;
      if (layer + 1 < last) ahead.read(old, grid, offsets, columns, y, (int)layer + 2);
      behind.reduce(near, columns);
      typename Cell::Part all = before.side;
      all.join(here.ring);
      all.join(behind.side);

      const unsigned row = LATTICE_DIMENSIONS == 3 ? layer * grid.height + y : layer;
      typename Cell::Around around;
      around.neighbours = neighbours_of(grid, columns, y, layer, layers);
      around.x = x;
      around.y = LATTICE_DIMENSIONS == 3 ? y : layer;
      around.z = LATTICE_DIMENSIONS == 3 ? layer : 0;
      around.tick = tick;
      Cell::around(around, all, around.neighbours);
      typename Cell::Agent agent;
      agent.open(words[0], words[1], row * grid.width + x, tick);
      Cell::load(agent, own, row_of(old, grid, row), offsets, x);
      Cell::step(agent, params, around);
      const Row to = row_of(made, grid, row);
      Cell::store(agent, to, offsets, x);
      if (leads) ((unsigned long long *)(to.page + offsets[LATTICE_VARS - 1]))[(to.at + x) / group] = tick + 1;
      if (count) counts.add(Cell::candidate(agent));

      before = here;
      here = behind;
      own = near.here.here;
      near = ahead;
    }
    if (count) counts.flush(sums);
  }
  __syncthreads();
  if (count && threadIdx.x < LATTICE_CANDIDATES && sums[threadIdx.x])
    atomicAdd(&tally[threadIdx.x], (unsigned long long)sums[threadIdx.x]);
}
