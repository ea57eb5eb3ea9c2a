// space_gather makes a list of the agents that have a place in it; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_gather(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
             unsigned stride, unsigned dims, unsigned agents, const unsigned *places, uint4 *positions) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const unsigned id = (unsigned)i, place = places[i];
    if (places[i + 1] == place) continue;
    unsigned char *page = all.page(id);
    const unsigned z = dims == 3 ? *all.word(page, id, 2) : 0;
    positions[place] = make_uint4(*all.word(page, id, 0), *all.word(page, id, 1), z, id);
  }
}
