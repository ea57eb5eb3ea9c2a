// space_dots counts the agents in each cell of a picture of the box; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_dots(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
           unsigned stride, unsigned dims, unsigned agents, unsigned living, unsigned columns, unsigned rows,
           unsigned *counts) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const unsigned id = (unsigned)i;
    unsigned char *page = all.page(id);
    if (living && page[id % per] == 0) continue;
    const unsigned x = Bins::on(*all.word(page, id, 0), columns), y = Bins::on(*all.word(page, id, 1), rows);
    atomicAdd(counts + (u64)(rows - 1 - y) * columns + x, 1u);
  }
}
