// graph_pick writes the numbers of the agents whose bit is 1, in any order; see graphset.go. A thread has a word of 32
// bits, and a block adds what it has found to the length of the list at once.
extern "C" __global__ void __launch_bounds__(128)
graph_pick(const unsigned *bits, unsigned agents, unsigned *active, unsigned *counts, unsigned which) {
  __shared__ unsigned totals[4];
  __shared__ unsigned start;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u64 words = ((u64)agents + 31) / 32, step = (u64)gridDim.x * blockDim.x;
  for (u64 first = (u64)blockIdx.x * blockDim.x; first < words; first += step) {
    const u64 at = first + threadIdx.x;
    unsigned word = at < words ? bits[at] : 0, upto = (unsigned)__popc(word); // bits of the lanes up to this one
    const unsigned own = upto;
    for (unsigned d = 1; d < 32; d *= 2) {
      const unsigned before = __shfl_sync(0xffffffffu, upto, (int)((lane - d) % 32));
      if (lane >= d) upto += before;
    }
    if (lane == 31) totals[warp] = upto;
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned sum = 0;
      for (unsigned w = 0; w < blockDim.x / 32; w++) {
        const unsigned total = totals[w];
        totals[w] = sum;
        sum += total;
      }
      start = sum ? atomicAdd(counts + which, sum) : 0;
    }
    __syncthreads();
    unsigned *to = active + start + totals[warp] + upto - own;
    for (; word; word &= word - 1) *to++ = (unsigned)at * 32 + (unsigned)__ffs((int)word) - 1;
    __syncthreads();
  }
}
