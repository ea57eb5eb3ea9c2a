// graph_sir makes a tick of an epidemic; see graphset.go. A lane has four agents at a time. It queues the agents
// whose first draw says that a link is tried with success, and the lanes take agents from the queue: few are in it, and
// most lanes would wait for them. A queue is filled from SPANS times 128 agents, since lanes have nothing to do at its
// end. The warp shares the parts of rows that have several. The first agent has the id first_id. Draws and the bits
// that are read go by ids; all other numbers count from the first agent.

#define SPANS 4
#define QUEUE (SPANS * 128)
#define BUCKETS 256
#define HIT 3

// The draws of an agent for a part of its row: words of blocks of their own.
struct Draws {
  unsigned key0, key1, id, tick, part, drawn;
  unsigned w1, w2, w3; // of the last block

  __device__ __forceinline__ unsigned next() {
    const unsigned k = drawn++ % 4;
    if (k == 0) {
      const Words block(key0, key1, (drawn - 1) / 4, id, tick, part + 1);
      w1 = block.w[1], w2 = block.w[2], w3 = block.w[3];
      return block.w[0];
    }
    return k == 1 ? w1 : (k == 2 ? w2 : w3);
  }
};

// Returns how many links a word misses, if it misses from low to high links. misses falls from link to link.
__device__ __forceinline__ unsigned missed_by(unsigned word, const unsigned *misses, unsigned low, unsigned high) {
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (below(word, misses[middle]))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// What the trials of all agents need.
struct Contacts {
  const unsigned *infected; // bits of the agents
  const unsigned *columns;
  const int *weights; // null: all links count
  const unsigned *misses;
  const unsigned char *least; // of the words with the same high bits and above: the misses of the largest of them

  // Reports whether none of some links is tried with success, up to GAPS of them.
  __device__ __forceinline__ bool none(unsigned word, u64 links) const { return below(word, chance(links)); }

  // The chance that none of some links, 1 or more, is tried with success; 0 of more than GAPS.
  __device__ __forceinline__ unsigned chance(u64 links) const { return links <= GAPS ? misses[links - 1] : 0; }

  // Goes behind the next link that is tried with success, or GAPS links further, and draws the next word. An agent's
  // links behind from must have such a link, or be more than GAPS. It reports whether it has found a link that counts,
  // and to whom: other may still be on its way.
  __device__ __forceinline__ bool next(u64 &from, unsigned &word, Draws &draws, unsigned &other) const {
    const unsigned bucket = word / (0xffffffffu / BUCKETS + 1);
    const unsigned missed = missed_by(word, misses, least[bucket + 1], least[bucket]); // least[0] is GAPS
    if (missed == GAPS) {
      from += GAPS;
      word = draws.next();
      return false;
    }
    from += missed;
    other = __ldg(columns + from);
    const bool counts = !weights || draws.next() >> 16 < (unsigned)__ldg(weights + from);
    word = draws.next();
    from++;
    return counts;
  }

  // Reports whether a trial of the links from..end of an agent succeeds at an infected one. word is the first draw.
  __device__ bool exposed(u64 from, u64 end, unsigned word, Draws &draws) const {
    unsigned other;
    while (from < end && !none(word, end - from))
      if (next(from, word, draws, other) && __ldg(infected + other / 32) >> other % 32 & 1) return true;
    return false;
  }
};

extern "C" __global__ void __launch_bounds__(128)
graph_sir(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
          const unsigned *infected, unsigned *next, const unsigned long long *offsets, const unsigned *columns,
          const int *weights, unsigned degree, unsigned weighted, const unsigned *misses, unsigned recovery,
          unsigned tick, unsigned key0, unsigned key1, unsigned count, unsigned long long *tally, unsigned first_id) {
  __shared__ unsigned table[GAPS];
  __shared__ unsigned char leasts[BUCKETS + 1];
  __shared__ unsigned words[4][QUEUE];
  __shared__ unsigned short queues[4][QUEUE];
  __shared__ unsigned char held[4][QUEUE]; // states of agents; HIT of one that is infected now
  for (unsigned i = threadIdx.x; i < GAPS; i += blockDim.x) table[i] = misses[i];
  __syncthreads();
  for (unsigned i = threadIdx.x; i <= BUCKETS; i += blockDim.x) {
    const unsigned largest = i * (0xffffffffu / BUCKETS + 1) - 1; // of bucket i - 1
    leasts[i] = (unsigned char)(i ? missed_by(largest, table, 0, GAPS) : GAPS);
  }
  __syncthreads();
  unsigned *const draw = words[threadIdx.x / 32];
  unsigned short *const queue = queues[threadIdx.x / 32];
  unsigned char *const states = held[threadIdx.x / 32];
  const Pages all = {pages, frames, page_bytes, per};
  const Links links = {offsets, degree};
  const Contacts contacts = {infected, columns, weighted ? weights : nullptr, table, leasts};
  const unsigned lane = threadIdx.x % 32;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  unsigned counts[3] = {0, 0, 0};
  const unsigned regular = degree ? contacts.chance(degree) : 0;
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * QUEUE < agents; w += warps) {
    // The agents of the warp have numbers from 0 on. A lane has four agents in each span.
    unsigned queued = 0, recovered = 0, hubs = 0; // of the warp, and bits of the lane's agents
    for (unsigned span = 0; span < SPANS; span++) {
      const u64 id = w * QUEUE + span * 128 + lane * 4;
      const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
      unsigned char before[4];
      all.read((unsigned)id, n, before);
      for (unsigned k = 0; k < 4; k++) states[span * 128 + lane * 4 + k] = before[k];
      const Words first(key0, key1, 0, (unsigned)(id / 4) + first_id / 4, tick, 0);
#pragma unroll
      for (unsigned k = 0; k < 4; k++) {
        bool tries = before[k] == 0; // agents that are not there have other states
        bool hub = tries && degree > PART;
        unsigned none = regular;
        if (tries && degree == 0) {
          const u64 length = links.first(id + k + 1) - links.first(id + k);
          tries = length > 0, hub = length > PART;
          none = tries ? contacts.chance(length) : 0;
        }
        if (before[k] == 1 && below(first.w[k], recovery)) recovered |= 1u << (span * 4 + k);
        if (hub) hubs |= 1u << (span * 4 + k);
        tries = tries && !hub && !below(first.w[k], none);
        const unsigned those = __ballot_sync(0xffffffffu, tries);
        if (tries) {
          const unsigned at = queued + (unsigned)__popc(those & ((1u << lane) - 1));
          queue[at] = (unsigned short)(span * 128 + lane * 4 + k);
          draw[at] = first.w[k];
        }
        queued += (unsigned)__popc(those);
      }
    }
    __syncwarp(0xffffffffu);
    // A lane that has done with an agent takes the next one of the queue, so that no lane waits for others. It reads
    // the bit of the agent of a link while it goes to the next link, so that it waits less for memory.
    {
      Draws draws = {key0, key1, 0, tick, 0, 0, 0, 0, 0};
      unsigned taken = 0, local = 0, word = 0;
      unsigned other = 0, of = 0; // the agent of the last link, and whose link it is
      u64 from = 0, end = 0;
      bool busy = false, asks = false;
      for (;;) {
        const unsigned idle = __ballot_sync(0xffffffffu, !busy);
        const unsigned i = taken + (unsigned)__popc(idle & ((1u << lane) - 1));
        if (!busy && i < queued) {
          local = queue[i], word = draw[i];
          const unsigned who = (unsigned)(w * QUEUE) + local;
          draws.id = first_id + who, draws.drawn = 0;
          from = links.first(who), end = links.first((u64)who + 1);
          busy = true;
        }
        if (__ballot_sync(0xffffffffu, busy || asks) == 0) break;
        taken += (unsigned)__popc(idle);
        const bool asked = asks;
        const unsigned whose = of, bit = other % 32, bits = asked ? __ldg(infected + other / 32) : 0;
        asks = busy && contacts.next(from, word, draws, other);
        of = local;
        busy = busy && from < end && !contacts.none(word, end - from);
        if (!asked || !(bits >> bit & 1)) continue;
        states[whose] = HIT;
        if (whose == of) busy = asks = false;
      }
    }
    for (unsigned those = __ballot_sync(0xffffffffu, hubs != 0); those; those &= those - 1) {
      const int of = __ffs((int)those) - 1;
      for (unsigned its = __shfl_sync(0xffffffffu, hubs, of); its; its &= its - 1) {
        const unsigned bit = (unsigned)__ffs((int)its) - 1, local = bit / 4 * 128 + (unsigned)of * 4 + bit % 4;
        const unsigned hub = (unsigned)(w * QUEUE) + local;
        const u64 begin = links.first(hub), stop = links.first((u64)hub + 1);
        bool found = false;
        for (u64 base = begin; base < stop && !found; base += 32 * PART) {
          const u64 at = base + lane * PART;
          bool here = false;
          if (at < stop) {
            Draws draws = {key0, key1, first_id + hub, tick, (unsigned)((at - begin) / PART), 0, 0, 0, 0};
            const Words first(key0, key1, 0, (first_id + hub) / 4, tick, 0);
            here = contacts.exposed(at, stop - at < PART ? stop : at + PART,
                                    draws.part ? draws.next() : first.at(hub % 4), draws);
          }
          found = __ballot_sync(0xffffffffu, here) != 0;
        }
        if (found && lane == 0) states[local] = HIT;
      }
    }
    __syncwarp(0xffffffffu);
    for (unsigned span = 0; span < SPANS; span++) {
      const u64 id = w * QUEUE + span * 128 + lane * 4;
      const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
      unsigned char *const mine = states + span * 128 + lane * 4;
      unsigned ill = 0;
      bool changed = false;
#pragma unroll
      for (unsigned k = 0; k < 4; k++) {
        if (mine[k] == HIT) mine[k] = 1, changed = true;
        if (recovered >> (span * 4 + k) & 1) mine[k] = 2, changed = true;
        ill |= (unsigned)(mine[k] == 1) << k;
        for (unsigned s = 0; count && s < 3; s++) counts[s] += mine[k] == s;
      }
      if (changed) all.write((unsigned)id, n, mine);
      write_bits(next, w * SPANS + span, ill, agents);
    }
    __syncwarp(0xffffffffu); // before the queue is filled again
  }
  if (count)
    for (unsigned s = 0; s < 3; s++) add_warp(counts[s], tally + s);
}
