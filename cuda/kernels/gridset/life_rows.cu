// grid_life_rows makes a generation of Life of a grid whose rows are whole chunks and lie in one page each; see
// gridset.go. A thread makes a chunk of 16 cells in up to BAND rows of a page, one below the other, so that it reads a
// row once and not three times. Four cells are the bytes of a word, and all sums are at most 9: no byte carries into
// the next one.

// A chunk of a row, with the cells before and behind it. Rows outside of the grid are dead.
struct Chunk {
  uint4 v;
  unsigned before, behind;

  // Reads the chunk at x of a row, or of a dead one where row is null. The two generations share no page, so that the
  // loads may go ahead of the stores.
  __device__ __forceinline__ void read(const unsigned char *row, unsigned x, unsigned width, unsigned periodic) {
    v = make_uint4(0, 0, 0, 0);
    before = behind = 0;
    if (!row) return;
    v = __ldg((const uint4 *)(row + x));
    if (x > 0 || periodic) before = __ldg(row + (x > 0 ? x : width) - 1);
    if (x + CHUNK < width || periodic) behind = __ldg(row + (x + CHUNK < width ? x + CHUNK : 0));
  }
};

// The cells of a chunk, and for each the sum of itself and of its neighbours in the row.
struct Cells {
  unsigned alive[4], sums[4];

  __device__ __forceinline__ explicit Cells(const Chunk &c) {
    const uint4 v = c.v;
    alive[0] = v.x, alive[1] = v.y, alive[2] = v.z, alive[3] = v.w;
    sums[0] = v.x + (v.x << 8 | c.before) + (v.x >> 8 | v.y << 24);
    sums[1] = v.y + (v.y << 8 | v.x >> 24) + (v.y >> 8 | v.z << 24);
    sums[2] = v.z + (v.z << 8 | v.y >> 24) + (v.z >> 8 | v.w << 24);
    sums[3] = v.w + (v.w << 8 | v.z >> 24) + (v.w >> 8 | c.behind << 24);
  }
};

// The next generation of four cells. all has the sum of nine cells for each of them. A cell lives with three
// neighbours, or with two if it is alive. The neighbours, or 1 for a cell that is alive, are 3 in both cases and in no
// other.
__device__ __forceinline__ unsigned born(unsigned all, unsigned alive) {
  const unsigned other = ((all - alive) | alive) ^ 0x03030303u; // 0 where a cell lives, else at most 15
  return (0x10101010u - other) >> 4 & 0x01010101u;
}

extern "C" __global__ void __launch_bounds__(128)
grid_life_rows(const unsigned char *from, const unsigned *from_frames, unsigned char *to, const unsigned *to_frames,
               unsigned long long page_bytes, unsigned per, unsigned width, unsigned height, unsigned periodic,
               unsigned count, unsigned long long *alive) {
  const Grid old = {(unsigned char *)from, from_frames, page_bytes, per}, made = {to, to_frames, page_bytes, per};
  const unsigned columns = width / CHUNK, each = per / width, bands = (each + BAND - 1) / BAND;
  const u64 threads = (u64)columns * bands * ((height + each - 1) / each), step = (u64)gridDim.x * blockDim.x;
  unsigned living = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < threads; i += step) {
    const unsigned x = (unsigned)i % columns * CHUNK, band = (unsigned)i / columns;
    const unsigned of = band % bands * BAND, first = band / bands * each + of; // its first row, in the page and in all
    if (first >= height) continue;
    unsigned n = each - of < BAND ? each - of : BAND;
    if (height - first < n) n = height - first;
    const unsigned char *row = old.cell(first * width), *top = nullptr, *bottom = nullptr;
    if (first > 0 || periodic) top = old.cell((first > 0 ? first - 1 : height - 1) * width);
    if (first + n < height || periodic) bottom = old.cell((first + n < height ? first + n : 0) * width);
    unsigned char *out = made.cell(first * width) + x;
    Chunk chunk, ahead;
    chunk.read(top, x, width, periodic);
    Cells above(chunk);
    chunk.read(row, x, width, periodic);
    Cells here(chunk);
    // A row is read two rows before its sums are used: a thread waits for memory only at its first rows.
    row += width;
    chunk.read(n > 1 ? row : bottom, x, width, periodic);
#pragma unroll 1
    for (unsigned k = 0; k < n; k++, out += width) {
      row += width;
      if (k + 1 < n) ahead.read(k + 2 < n ? row : bottom, x, width, periodic);
      const Cells below(chunk);
      uint4 v;
      v.x = born(above.sums[0] + here.sums[0] + below.sums[0], here.alive[0]);
      v.y = born(above.sums[1] + here.sums[1] + below.sums[1], here.alive[1]);
      v.z = born(above.sums[2] + here.sums[2] + below.sums[2], here.alive[2]);
      v.w = born(above.sums[3] + here.sums[3] + below.sums[3], here.alive[3]);
      *(uint4 *)out = v;
      if (count) living += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
      above = here;
      here = below;
      chunk = ahead;
    }
  }
  if (count) add_warp(living, alive);
}
