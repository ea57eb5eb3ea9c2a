// space_born makes agents of births where there is room; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_born(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
           unsigned stride, unsigned dims, unsigned agents, const unsigned *births, const unsigned *empty,
           const unsigned *slots, const uint4 *children, unsigned lost, unsigned group) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  const unsigned room = empty[agents];
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const unsigned id = (unsigned)i, number = births[i];
    if (births[i + 1] == number) continue;
    if (number >= room) {
      atomicAdd((unsigned *)(all.page(id) + lost) + id % per / group, 1u);
      continue;
    }
    const unsigned slot = slots[number];
    const uint4 p = children[i];
    unsigned char *page = all.page(slot);
    page[slot % per] = 1;
    *all.word(page, slot, 0) = p.x;
    *all.word(page, slot, 1) = p.y;
    if (dims == 3) *all.word(page, slot, 2) = p.z;
  }
}
