// swarm_bids finds the best bid of the agents that vote for each candidate; see swarmset.go. A bid is the priority of
// an agent in the high half and ~agent in the low one: the largest leads, and of equal priorities the smallest agent.
// A block keeps the best bid for each candidate. A thread first looks only whether one of its agents has a priority
// that reaches the lowest of these: 9 instructions for an agent. Few do, so their votes are read, and their bids
// compared, one by one. Threads read bids while others raise them: a value that is too old is lower, and costs a
// comparison or an atomic operation that changes nothing.

// The priority of an agent, as of consensus.Draw, before its last step, which leaves the high half as it is.
__device__ __forceinline__ unsigned mixed(unsigned agent, unsigned key, unsigned salt) {
  unsigned x = agent ^ key;
  x = (x ^ x >> 16) * 0x7feb352du;
  return (x ^ x >> 15 ^ salt) * 0x846ca68bu;
}

extern "C" __global__ void __launch_bounds__(256)
swarm_bids(unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned per, unsigned votes,
           unsigned first, unsigned count, unsigned n, unsigned base, unsigned key, unsigned salt, unsigned incumbent,
           unsigned candidates, unsigned only, unsigned publish, unsigned long long *board, unsigned long long *scratch,
           unsigned sequence, unsigned long long *result) {
  __shared__ u64 best[BIDS_BOARD]; // by vote byte: the best bid; of byte 0 the vote byte of the incumbent
  __shared__ u64 reach;            // the high half of the lowest priority of these bids: none below it changes any
  __shared__ bool last;
  const unsigned lowest = only ? only : 1, highest = only ? only : candidates;
  const Agents s = {pages, page_bytes, frames, per};
  for (unsigned v = threadIdx.x; v < BIDS_BOARD; v += blockDim.x) best[v] = 0;
  if (threadIdx.x == 0) reach = 0;
  __syncthreads();
  const unsigned chunks = (per + VOTES_THREAD - 1) / VOTES_THREAD; // of a page
  const u64 units = (u64)count * chunks, step = (u64)gridDim.x * blockDim.x;
  for (u64 u = (u64)blockIdx.x * blockDim.x + threadIdx.x; u < units; u += step) {
    const unsigned number = first + (unsigned)u / chunks, in = (unsigned)u % chunks * VOTES_THREAD;
    const unsigned agent = number * per + in;
    const unsigned char *page = s.page(number);
    if (!page || agent >= n) continue;
    const unsigned left = per - in < n - agent ? per - in : n - agent; // agents of the page and of the swarm
    if (incumbent - agent < left && incumbent - agent < VOTES_THREAD)
      best[0] = page[votes + in + incumbent - agent];
    unsigned top = 0; // also of agents beyond the last one, which have no vote
#pragma unroll
    for (unsigned k = 0; k < VOTES_THREAD; k++) {
      const unsigned x = mixed(base + agent + k, key, salt);
      top = x > top ? x : top;
    }
    const unsigned from = (unsigned)*(volatile u64 *)&reach;
    if (top < from) continue;
    const uint4 all = *(const uint4 *)(page + votes + in); // variables are padded to more than that
    const unsigned words[VOTES_THREAD / 4] = {all.x, all.y, all.z, all.w};
    bool raised = false;
#pragma unroll
    for (unsigned k = 0; k < VOTES_THREAD; k++) {
      const unsigned id = base + agent + k, x = mixed(id, key, salt), vote = words[k / 4] >> 8 * (k % 4) & 0xffu;
      if (x < from || vote < lowest || vote > highest || k >= left) continue;
      const u64 bid = (u64)(x ^ x >> 16) << 32 | ~id;
      if (bid <= *(volatile u64 *)&best[vote]) continue;
      atomicMax(&best[vote], bid);
      raised = true;
    }
    if (!raised) continue;
    unsigned low = ~0u;
    for (unsigned v = lowest; v <= highest; v++) {
      const unsigned has = *(volatile u64 *)&best[v] >> 32;
      low = has < low && scratch[AGENT_TALLY + v - 1] ? has : low; // nobody votes for a candidate without votes
    }
    atomicMax(&reach, low & 0xffff0000u);
  }
  __syncthreads();
  for (unsigned v = threadIdx.x; v < BIDS_BOARD; v += blockDim.x)
    if (best[v] > __ldcg(&board[v])) atomicMax(&board[v], best[v]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc((unsigned *)scratch, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (unsigned v = threadIdx.x; publish && v < BIDS_BOARD; v += blockDim.x) {
    result[BIDS_RESULT + v] = __ldcg(&board[v]);
    board[v] = 0;
    if (v < candidates) result[BIDS_TALLY + v] = __ldcg(&scratch[AGENT_TALLY + v]);
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *(volatile u64 *)&result[BIDS_SEQUENCE] = sequence;
}
