// space_store writes a list of agents into the pages; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_store(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
            unsigned stride, unsigned dims, unsigned agents, unsigned moving, const uint4 *positions,
            const uint4 *velocities, const unsigned char *states) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const uint4 p = positions[i];
    unsigned char *page = all.page(p.w);
    page[p.w % per] = states[i];
    *all.word(page, p.w, 0) = p.x;
    *all.word(page, p.w, 1) = p.y;
    if (dims > 2) *all.word(page, p.w, 2) = p.z;
    if (!moving) continue;
    const uint4 v = velocities[i];
    *(float *)all.word(page, p.w, dims) = (float)(int)v.x * UNIT;
    *(float *)all.word(page, p.w, dims + 1) = (float)(int)v.y * UNIT;
    if (dims > 2) *(float *)all.word(page, p.w, dims + 2) = (float)(int)v.z * UNIT;
  }
}
