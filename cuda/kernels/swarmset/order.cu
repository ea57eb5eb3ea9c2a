// swarm_order_2 and its like write the agents of each vote in their order, or their embeddings of one float32; see
// swarmset.go. A block sorts as many agents in shared memory as its threads have, and writes the agents of a
// candidate together.

extern "C" __global__ void __launch_bounds__(256)
NAME(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
     unsigned rows, unsigned embeddings, unsigned n, unsigned candidates, unsigned tiles, const unsigned *before,
     const unsigned *nodes, unsigned *order) {
  __shared__ unsigned sorted[256 * VOTES_THREAD], warps[8][WORDS], to[2 * WORDS], starts[2 * WORDS + 1];
  const Agents s = {pages, page_bytes, frames, per};
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = blockDim.x / 32;
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x)
      to[c] = nodes[2 * c] + before[(u64)c * tiles + tile];
    for (unsigned q = 0; q < VOTE_TILE; q += blockDim.x * VOTES_THREAD) {
      const unsigned own = q + threadIdx.x * VOTES_THREAD, first = own < VOTE_TILE ? tile * VOTE_TILE + own : n;
      unsigned words[VOTES_THREAD / 4], values[VOTES_THREAD];
      load_votes(s, votes, first, n, words);
      if (embeddings) {
        load_values(s, rows, first, n, values);
      } else {
#pragma unroll
        for (int k = 0; k < VOTES_THREAD; k++) values[k] = first + k;
      }
      Halves mine, place;
      mine.count_all(words, candidates);
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
      if (warp == 0) { // a lane has a candidate
        unsigned sum = 0;
        for (unsigned w = 0; w < all; w++)
          sum += lane < 2 * WORDS ? warps[w][lane / 2] >> 16 * (lane % 2) & 0xffffu : 0;
        unsigned upto = sum;
#pragma unroll
        for (unsigned d = 1; d < 32; d *= 2) {
          const unsigned other = __shfl_up_sync(FULL, upto, d);
          if (lane >= d) upto += other;
        }
        if (lane <= 2 * WORDS) starts[lane] = upto - sum;
      }
#pragma unroll
      for (int w = 0; w < WORDS; w++)
        for (unsigned k = 0; k < warp; k++) place.words[w] += warps[k][w];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < VOTES_THREAD; k++) {
        const unsigned vote = words[k / 4] >> 8 * (k % 4) & 255u;
        if (vote - 1 < candidates) sorted[starts[vote - 1] + place.count(vote - 1)] = values[k];
      }
      __syncthreads();
      for (unsigned c = 0; c < candidates; c++)
        for (unsigned i = starts[c] + threadIdx.x; i < starts[c + 1]; i += blockDim.x)
          order[to[c] + (i - starts[c])] = sorted[i];
      __syncthreads();
      for (unsigned c = threadIdx.x; c < candidates; c += blockDim.x) to[c] += starts[c + 1] - starts[c];
      __syncthreads();
    }
  }
}
