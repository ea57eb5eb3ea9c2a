// grid_life_rows makes a generation of Life of a grid whose rows are whole chunks and lie in one page each; see
// gridset.go. A thread makes a chunk of 16 cells in BAND rows, one below the other, so that it reads a row once and not
// three times. Four cells are the bytes of a word, and all sums are at most 9: no byte carries into the next one.

// The rows of a grid, one after the other.
struct Rows {
  const Grid &grid;
  unsigned width, height, each; // each: rows of a page
  unsigned y, left;             // the row, and the rows of its page that follow it
  unsigned char *row;

  __device__ __forceinline__ Rows(const Grid &of, unsigned w, unsigned h, unsigned first)
      : grid(of), width(w), height(h), each(of.per / w) {
    seek(first);
  }
  __device__ __forceinline__ void seek(unsigned to) {
    y = to;
    left = each - 1 - to % each;
    row = grid.cell(to * width);
  }
  // Goes to the next row, and from the last one to the first.
  __device__ __forceinline__ void next() {
    if (y + 1 == height) {
      seek(0);
    } else if (left == 0) {
      seek(y + 1);
    } else {
      y++, left--, row += width;
    }
  }
};

// A chunk of a row: its cells, and for each the sum of itself and of its neighbours in the row.
struct Cells {
  unsigned alive[4], sums[4];

  __device__ __forceinline__ void clear() {
    for (int i = 0; i < 4; i++) alive[i] = sums[i] = 0;
  }
  __device__ __forceinline__ void read(const unsigned char *row, unsigned x, unsigned width, bool periodic) {
    const uint4 v = *(const uint4 *)(row + x);
    unsigned before = 0, behind = 0;
    if (x > 0)
      before = row[x - 1];
    else if (periodic)
      before = row[width - 1];
    if (x + CHUNK < width)
      behind = row[x + CHUNK];
    else if (periodic)
      behind = row[0];
    alive[0] = v.x, alive[1] = v.y, alive[2] = v.z, alive[3] = v.w;
    sums[0] = v.x + (v.x << 8 | before) + (v.x >> 8 | v.y << 24);
    sums[1] = v.y + (v.y << 8 | v.x >> 24) + (v.y >> 8 | v.z << 24);
    sums[2] = v.z + (v.z << 8 | v.y >> 24) + (v.z >> 8 | v.w << 24);
    sums[3] = v.w + (v.w << 8 | v.z >> 24) + (v.w >> 8 | behind << 24);
  }
};

// The next generation of four cells, of which all are the sums of nine cells: a cell lives with three neighbours, or
// with two if it is alive. The neighbours, or 1 for a cell that is alive, are 3 in both cases and in no other.
__device__ __forceinline__ unsigned born(unsigned all, unsigned alive) {
  const unsigned other = ((all - alive) | alive) ^ 0x03030303u; // 0 where a cell lives, else at most 15
  return (0x10101010u - other) >> 4 & 0x01010101u;
}

extern "C" __global__ void __launch_bounds__(256)
grid_life_rows(const unsigned char *from, const unsigned *from_frames, unsigned char *to, const unsigned *to_frames,
               unsigned long long page_bytes, unsigned per, unsigned width, unsigned height, unsigned periodic,
               unsigned count, unsigned long long *alive) {
  const Grid old = {(unsigned char *)from, from_frames, page_bytes, per}, made = {to, to_frames, page_bytes, per};
  const unsigned columns = width / CHUNK;
  const u64 threads = (u64)columns * ((height + BAND - 1) / BAND), step = (u64)gridDim.x * blockDim.x;
  unsigned living = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < threads; i += step) {
    const unsigned x = (unsigned)(i % columns) * CHUNK, first = (unsigned)(i / columns) * BAND;
    const unsigned n = height - first < BAND ? height - first : BAND;
    Cells above, here, below;
    Rows in(old, width, height, first > 0 ? first - 1 : height - 1), out(made, width, height, first);
    above.clear();
    if (first > 0 || periodic) above.read(in.row, x, width, periodic);
    in.next();
    here.read(in.row, x, width, periodic);
    for (unsigned k = 0; k < n; k++) {
      in.next();
      below.clear();
      if (in.y > 0 || periodic) below.read(in.row, x, width, periodic);
      uint4 v;
      v.x = born(above.sums[0] + here.sums[0] + below.sums[0], here.alive[0]);
      v.y = born(above.sums[1] + here.sums[1] + below.sums[1], here.alive[1]);
      v.z = born(above.sums[2] + here.sums[2] + below.sums[2], here.alive[2]);
      v.w = born(above.sums[3] + here.sums[3] + below.sums[3], here.alive[3]);
      *(uint4 *)(out.row + x) = v;
      if (count) living += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
      if (k + 1 < n) out.next();
      above = here;
      here = below;
    }
  }
  if (count) add_warp(living, alive);
}
