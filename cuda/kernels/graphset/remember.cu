// graph_remember appends the states of neurons to the bits of their last ticks; see graphset.go. A thread has a neuron.
extern "C" __global__ void __launch_bounds__(128)
graph_remember(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per,
               unsigned agents, unsigned history, unsigned keep, unsigned first_id) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    const u64 id = first_id + i;
    unsigned char *page = pages + frames[id / per] * page_bytes;
    unsigned *past = (unsigned *)(page + history) + id % per;
    const unsigned was = *past, now = (was << 1 | (page[id % per] == 1)) & keep;
    if (now != was) *past = now;
  }
}
