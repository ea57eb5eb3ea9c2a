// space_flags writes a word for each agent, 1 if it is in a state; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_flags(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
            unsigned stride, unsigned dims, unsigned agents, unsigned state, unsigned *flags) {
  const Pages all = {pages, frames, page_bytes, per, at, stride};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step)
    flags[i] = all.page((unsigned)i)[(unsigned)i % per] == state;
}
