// swarm_votes_2 and its like count the votes of each tile of agents; see swarmset.go.

extern "C" __global__ void __launch_bounds__(256)
NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
     unsigned n, unsigned candidates, unsigned tiles, unsigned *counts) {
  __shared__ unsigned sums[2 * WORDS];
  const Agents s = {pages, page_bytes, frames, per};
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (unsigned c = threadIdx.x; c < 2 * WORDS; c += blockDim.x) sums[c] = 0;
    __syncthreads();
    Halves mine;
    for (unsigned q = threadIdx.x; q < VOTE_TILE / VOTES_THREAD; q += blockDim.x) {
      unsigned words[VOTES_THREAD / 4];
      load_votes(s, votes, tile * VOTE_TILE + q * VOTES_THREAD, n, words);
      mine.count_all(words, candidates);
    }
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
      unsigned v = mine.words[w];
#pragma unroll
      for (unsigned d = 16; d > 0; d /= 2) v += __shfl_xor_sync(FULL, v, d);
      if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[2 * w], v & 0xffffu);
        atomicAdd(&sums[2 * w + 1], v >> 16);
      }
    }
    __syncthreads();
    for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x) counts[(u64)c * tiles + tile] = sums[c];
    __syncthreads();
  }
}
