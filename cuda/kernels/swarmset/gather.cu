// swarm_gather reads the votes and values of agents; see swarmset.go. A thread has a value, and neighbours have the
// values of the same agent.
extern "C" __global__ void __launch_bounds__(256)
swarm_gather(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
             unsigned first, unsigned second, unsigned width, unsigned stride, unsigned bf16, const unsigned *ids,
             unsigned n, unsigned values, unsigned char *out_votes, float *out) {
  const Agents s = {pages, page_bytes, frames, per};
  const u64 all = (u64)n * values, step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const unsigned at = (unsigned)(i / values), value = (unsigned)(i % values), agent = ids[at];
    const unsigned number = agent / s.per, in = agent - number * s.per;
    const unsigned char *page = s.page(number);
    float v = 0.0f;
    if (page) {
      const unsigned char *from = page + (value < width ? first : second);
      const u64 element = (u64)in * stride + (value < width ? value : value - width);
      if (bf16)
        v = __uint_as_float((unsigned)((const unsigned short *)from)[element] << 16);
      else
        v = ((const float *)from)[element];
    }
    out[i] = v;
    if (value == 0) out_votes[at] = (unsigned char)((page ? page[votes + in] : 0) - 1);
  }
}
