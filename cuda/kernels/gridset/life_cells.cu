// grid_life_cells makes a generation of Life of any grid, cell by cell; see gridset.go.

// The state of the cell at x, y, which may be one step outside of the grid.
__device__ __forceinline__ unsigned at(const Grid &grid, unsigned width, unsigned height, unsigned periodic,
                                       long long x, long long y) {
  if (x < 0 || x >= width || y < 0 || y >= height) {
    if (!periodic) return 0;
    x = (x + width) % width;
    y = (y + height) % height;
  }
  return *grid.cell((unsigned)(y * width + x));
}

extern "C" __global__ void __launch_bounds__(128)
grid_life_cells(const unsigned char *from, const unsigned *from_frames, unsigned char *to, const unsigned *to_frames,
                unsigned long long page_bytes, unsigned per, unsigned width, unsigned height, unsigned periodic,
                unsigned count, unsigned long long *alive) {
  const Grid old = {(unsigned char *)from, from_frames, page_bytes, per}, made = {to, to_frames, page_bytes, per};
  const u64 cells = (u64)width * height, step = (u64)gridDim.x * blockDim.x;
  unsigned living = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < cells; i += step) {
    const unsigned id = (unsigned)i, x = id % width, y = id / width;
    unsigned neighbours = 0;
    for (int dy = -1; dy <= 1; dy++)
      for (int dx = -1; dx <= 1; dx++)
        if (dx || dy) neighbours += at(old, width, height, periodic, (long long)x + dx, (long long)y + dy);
    const unsigned lives = neighbours == 3 || (neighbours == 2 && *old.cell(id));
    *made.cell(id) = (unsigned char)lives;
    living += lives;
  }
  if (count) add_warp(living, alive);
}
