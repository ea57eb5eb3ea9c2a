// swarm_order writes the agents of each vote in their order; see swarmset.go. A block sorts so many agents in shared
// memory as its threads have, and writes those of a candidate together.

template <int WORDS>
__device__ __forceinline__ void place_tiles(const Agents &s, unsigned votes, unsigned n, unsigned candidates,
    unsigned tiles, const unsigned *before, const unsigned *nodes, unsigned *order, unsigned *sorted) {
  __shared__ unsigned warps[8][WORDS], to[2 * WORDS], starts[2 * WORDS + 1];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = blockDim.x / 32;
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x)
      to[c] = nodes[2 * c] + before[(u64)c * tiles + tile];
    for (unsigned q = 0; q < VOTE_TILE; q += blockDim.x * VOTES_THREAD) {
      const unsigned own = q + threadIdx.x * VOTES_THREAD, first = tile * VOTE_TILE + own;
      unsigned words[VOTES_THREAD / 4] = {};
      if (own < VOTE_TILE) load_votes(s, votes, first, n, words);
      Halves<WORDS> mine, place;
#pragma unroll
      for (int k = 0; k < VOTES_THREAD; k++) {
        const unsigned vote = words[k / 4] >> 8 * (k % 4) & 255u;
        if (vote - 1 < candidates) mine.count(vote - 1);
      }
#pragma unroll
      for (int w = 0; w < WORDS; w++) {
        unsigned v = mine.words[w];
#pragma unroll
        for (unsigned d = 1; d < 32; d *= 2) {
          const unsigned other = __shfl_up_sync(FULL, v, d);
          if (lane >= d) v += other;
        }
        place.words[w] = v - mine.words[w];
        if (lane == 31) warps[warp][w] = v;
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned c = 0; c < 2 * WORDS; c++) {
          starts[c] = sum;
          for (unsigned w = 0; w < all; w++) sum += warps[w][c / 2] >> 16 * (c % 2) & 0xffffu;
        }
        starts[2 * WORDS] = sum;
      }
#pragma unroll
      for (int w = 0; w < WORDS; w++)
        for (unsigned k = 0; k < warp; k++) place.words[w] += warps[k][w];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < VOTES_THREAD; k++) {
        const unsigned vote = words[k / 4] >> 8 * (k % 4) & 255u;
        if (vote - 1 < candidates) sorted[starts[vote - 1] + place.count(vote - 1)] = first + k;
      }
      __syncthreads();
      const unsigned end = starts[2 * WORDS];
      for (unsigned i = threadIdx.x; i < end; i += blockDim.x) {
        unsigned c = 0;
        while (i >= starts[c + 1]) c++;
        order[to[c] + (i - starts[c])] = sorted[i];
      }
      __syncthreads();
      for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x) to[c] += starts[c + 1] - starts[c];
      __syncthreads();
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
swarm_order(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
            unsigned n, unsigned candidates, unsigned tiles, const unsigned *before, const unsigned *nodes,
            unsigned *order) {
  __shared__ unsigned sorted[256 * VOTES_THREAD];
  const Agents s = {pages, page_bytes, frames, per};
  if (candidates <= 2)
    place_tiles<1>(s, votes, n, candidates, tiles, before, nodes, order, sorted);
  else if (candidates <= 6)
    place_tiles<3>(s, votes, n, candidates, tiles, before, nodes, order, sorted);
  else
    place_tiles<8>(s, votes, n, candidates, tiles, before, nodes, order, sorted);
}
