// The votes of agents, tile by tile. A thread has VOTES_THREAD consecutive agents at a time.
#pragma once

#define VOTES_THREAD 16
#define FULL 0xffffffffu

// The votes of the agents from first on, in a swarm of n agents: four bytes a word, a candidate + 1 each, or 0: the
// agent has no vote that counts.
__device__ __forceinline__ void load_votes(const Agents &s, unsigned votes, unsigned first, unsigned n, unsigned *to) {
#pragma unroll
  for (int k = 0; k < VOTES_THREAD / 4; k++) to[k] = 0;
  if (first >= n) return;
  const unsigned number = first / s.per, in = first - number * s.per;
  if (s.per % VOTES_THREAD == 0 && n - first >= VOTES_THREAD) {
    const unsigned char *page = s.page(number);
    if (!page) return;
    const uint4 v = *(const uint4 *)(page + votes + in);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    return;
  }
#pragma unroll
  for (int k = 0; k < VOTES_THREAD; k++) {
    const unsigned agent = (unsigned)k < n - first ? first + k : first, other = agent / s.per;
    const unsigned char *page = s.page(other);
    const unsigned vote = page && (unsigned)k < n - first ? page[votes + agent - other * s.per] : 0;
    to[k / 4] |= vote << 8 * (k % 4);
  }
}

// The embeddings of one float32 of the agents from first on, in a swarm of n agents; 0 where there is none.
__device__ __forceinline__ void load_values(const Agents &s, unsigned rows, unsigned first, unsigned n, unsigned *to) {
#pragma unroll
  for (int k = 0; k < VOTES_THREAD; k++) to[k] = 0;
  if (first >= n) return;
  const unsigned number = first / s.per, in = first - number * s.per;
  if (s.per % VOTES_THREAD == 0 && n - first >= VOTES_THREAD) {
    const unsigned char *page = s.page(number);
    if (!page) return;
#pragma unroll
    for (int k = 0; k < VOTES_THREAD; k += 4) {
      const uint4 v = *(const uint4 *)(page + rows + 4 * (u64)(in + k));
      to[k] = v.x, to[k + 1] = v.y, to[k + 2] = v.z, to[k + 3] = v.w;
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < VOTES_THREAD; k++) {
    const unsigned agent = (unsigned)k < n - first ? first + k : first, other = agent / s.per;
    const unsigned char *page = s.page(other);
    if (page) to[k] = *(const unsigned *)(page + rows + 4 * (u64)(agent - other * s.per));
  }
}

#ifdef WORDS
// Candidate c is half c % 2 of word c / 2 of counts of up to 65,535 each.
struct Halves {
  unsigned words[WORDS];

  __device__ __forceinline__ Halves() {
#pragma unroll
    for (int w = 0; w < WORDS; w++) words[w] = 0;
  }
  // Counts a candidate, and returns what its count was.
  __device__ __forceinline__ unsigned count(unsigned candidate) {
    const unsigned shift = 16 * (candidate % 2);
    unsigned was = 0;
#pragma unroll
    for (unsigned w = 0; w < WORDS; w++) {
      was = w == candidate / 2 ? words[w] >> shift & 0xffffu : was;
      words[w] += w == candidate / 2 ? 1u << shift : 0;
    }
    return was;
  }
  // Counts the votes of VOTES_THREAD agents, four in a word.
  __device__ __forceinline__ void count_all(const unsigned *votes, unsigned candidates) {
#pragma unroll
    for (unsigned c = 0; c < 2 * WORDS; c++) {
      if (c >= candidates) continue;
      unsigned found = 0;
#pragma unroll
      for (int k = 0; k < VOTES_THREAD / 4; k++) {
        const unsigned other = votes[k] ^ (c + 1) * 0x01010101u; // a byte is 0 where the vote is c + 1
        found += __popc(~(((other & 0x7f7f7f7fu) + 0x7f7f7f7fu) | other | 0x7f7f7f7fu));
      }
      words[c / 2] += found << 16 * (c % 2);
    }
  }
};
#endif
