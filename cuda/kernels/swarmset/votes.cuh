// The votes of agents, tile by tile. A thread has VOTES_THREAD consecutive agents at a time.
#pragma once

#define VOTES_THREAD 16
#define FULL 0xffffffffu

// The votes of the agents from first on, of which there are n in the swarm: four bytes a word, a candidate + 1 each, or
// 0: the agent has no vote that counts.
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

// Candidate c is half c % 2 of word c / 2 of counts of up to 65,535 each.
template <int WORDS> struct Halves {
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
};
