// space_load makes a list of the agents in the pages, in their order; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_load(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
           unsigned stride, unsigned dims, unsigned agents, unsigned moving, uint4 *positions, uint4 *velocities) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const unsigned id = (unsigned)i;
    unsigned char *page = all.page(id);
    const unsigned z = dims > 2 ? *all.word(page, id, 2) : 0;
    positions[i] = make_uint4(*all.word(page, id, 0), *all.word(page, id, 1), z, id);
    if (!moving) continue;
    int v[3] = {0, 0, 0};
    for (unsigned k = 0; k < dims; k++) v[k] = __float2int_rn(*(const float *)all.word(page, id, dims + k) * UNITS);
    velocities[i] = make_uint4((unsigned)v[0], (unsigned)v[1], (unsigned)v[2], 0);
  }
}
