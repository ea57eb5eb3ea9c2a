// space_place makes the positions and velocities of agents that have none; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_place(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
            unsigned stride, unsigned dims, unsigned first, unsigned end, unsigned most, unsigned key0, unsigned key1) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = first + (u64)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
    const unsigned id = (unsigned)i;
    unsigned char *page = all.page(id);
    const Words place(key0, key1, 0, id);
    for (unsigned k = 0; k < dims; k++) *all.word(page, id, k) = place.w[k];
    if (most == 0) continue;
    const Words speed(key0, key1, 1, id);
    for (unsigned k = 0; k < dims; k++) {
      const int v = (int)((i64)(int)speed.w[k] * (i64)most >> 31);
      *(float *)all.word(page, id, dims + k) = (float)v * UNIT;
    }
  }
}
