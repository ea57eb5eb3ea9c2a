// graph_sir makes a tick of an epidemic; see graphset.go. A lane has four agents. It queues those whose first draw says
// that a link is tried with success, and the warp tries their links, a lane for each: few agents are in the queue, and
// most lanes would wait for them. The warp shares the parts of rows that have several.

// The draws of an agent for a part of its row: words of blocks of their own.
struct Draws {
  unsigned key0, key1, id, tick, part, drawn;
  unsigned w0, w1, w2, w3;

  __device__ __forceinline__ unsigned next() {
    const unsigned k = drawn++ % 4;
    if (k == 0) {
      const Words block(key0, key1, (drawn - 1) / 4, id, tick, part + 1);
      w0 = block.w[0], w1 = block.w[1], w2 = block.w[2], w3 = block.w[3];
    }
    return k < 2 ? (k ? w1 : w0) : (k == 3 ? w3 : w2);
  }
};

// What the trials of all agents need.
struct Contacts {
  const unsigned *infected; // bits of the agents
  const unsigned *columns;
  const int *weights; // null: all links count
  const unsigned *misses;

  // Reports whether none of some links is tried with success, up to GAPS of them.
  __device__ __forceinline__ bool none(unsigned word, u64 links) const {
    return links <= GAPS && below(word, misses[links - 1]);
  }

  // Reports whether a trial of the links from..end of an agent succeeds at an infected one. word is the first draw.
  __device__ bool exposed(u64 from, u64 end, unsigned word, Draws &draws) const {
    while (from < end && !none(word, end - from)) {
      unsigned missed = 0;
#pragma unroll
      for (unsigned step = GAPS / 2; step > 0; step /= 2)
        if (below(word, misses[missed + step - 1])) missed += step;
      if (missed == GAPS - 1 && below(word, misses[GAPS - 1])) missed = GAPS;
      from += missed;
      if (missed < GAPS) {
        if (from >= end) return false;
        const unsigned other = __ldg(columns + from);
        const bool counts = !weights || draws.next() >> 16 < (unsigned)__ldg(weights + from);
        word = draws.next(); // while the column is on its way
        if (counts && (__ldg(infected + other / 32) >> other % 32 & 1)) return true;
        from++;
      } else {
        word = draws.next();
      }
    }
    return false;
  }
};

extern "C" __global__ void __launch_bounds__(128)
graph_sir(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned agents,
          const unsigned *infected, unsigned *next, const unsigned long long *offsets, const unsigned *columns,
          const int *weights, unsigned degree, unsigned weighted, const unsigned *misses, unsigned recovery,
          unsigned tick, unsigned key0, unsigned key1, unsigned count, unsigned long long *tally) {
  __shared__ unsigned table[GAPS];
  __shared__ unsigned words[4][128];
  __shared__ unsigned char queues[4][128], hits[4][128];
  if (threadIdx.x < GAPS) table[threadIdx.x] = misses[threadIdx.x];
  __syncthreads();
  unsigned *const draw = words[threadIdx.x / 32];
  unsigned char *const queue = queues[threadIdx.x / 32], *const hit = hits[threadIdx.x / 32];
  const Pages all = {pages, frames, page_bytes, per};
  const Links links = {offsets, degree};
  const Contacts contacts = {infected, columns, weighted ? weights : nullptr, table};
  const unsigned lane = threadIdx.x % 32;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  unsigned counts[3] = {0, 0, 0};
  for (u64 w = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; w * 128 < agents; w += warps) {
    const u64 id = w * 128 + lane * 4;
    const unsigned n = id >= agents ? 0 : (agents - id < 4 ? (unsigned)(agents - id) : 4);
    unsigned char states[4];
    all.read((unsigned)id, n, states);
    const Words first(key0, key1, 0, (unsigned)(id / 4), tick, 0);
    unsigned queued = 0; // of the warp
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
      const unsigned who = (unsigned)id + k, word = first.w[k];
      u64 from = 0, end = 0;
      if (k < n && states[k] == 0) from = links.first(who), end = links.first((u64)who + 1);
      hit[lane * 4 + k] = 0;
      const bool tries = end > from && end - from <= PART && !contacts.none(word, end - from);
      const unsigned those = __ballot_sync(0xffffffffu, tries);
      if (tries) {
        const unsigned at = queued + (unsigned)__popc(those & ((1u << lane) - 1));
        queue[at] = (unsigned char)(lane * 4 + k);
        draw[at] = word;
      }
      queued += (unsigned)__popc(those);
      for (unsigned hubs = __ballot_sync(0xffffffffu, end - from > PART); hubs; hubs &= hubs - 1) {
        const int of = __ffs((int)hubs) - 1;
        const u64 begin = __shfl_sync(0xffffffffu, from, of), stop = __shfl_sync(0xffffffffu, end, of);
        const unsigned hub = __shfl_sync(0xffffffffu, who, of), start = __shfl_sync(0xffffffffu, word, of);
        bool found = false;
        for (u64 base = begin; base < stop && !found; base += 32 * PART) {
          const u64 at = base + lane * PART;
          bool mine = false;
          if (at < stop) {
            const unsigned part = (unsigned)((at - begin) / PART);
            Draws draws = {key0, key1, hub, tick, part, 0, 0, 0, 0, 0};
            const unsigned drawn = part ? draws.next() : start;
            mine = contacts.exposed(at, stop - at < PART ? stop : at + PART, drawn, draws);
          }
          found = __ballot_sync(0xffffffffu, mine) != 0;
        }
        if (lane == (unsigned)of) hit[lane * 4 + k] = found;
      }
    }
    __syncwarp(0xffffffffu);
    for (unsigned i = lane; i < queued; i += 32) {
      const unsigned local = queue[i], who = (unsigned)(w * 128) + local;
      Draws draws = {key0, key1, who, tick, 0, 0, 0, 0, 0, 0};
      if (contacts.exposed(links.first(who), links.first((u64)who + 1), draw[i], draws)) hit[local] = 1;
    }
    __syncwarp(0xffffffffu);
    unsigned ill = 0;
    bool changed = false;
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
      if (hit[lane * 4 + k]) states[k] = 1, changed = true;
      else if (states[k] == 1 && below(first.w[k], recovery)) states[k] = 2, changed = true;
      if (k < n) {
        ill |= (unsigned)(states[k] == 1) << k;
        for (unsigned s = 0; s < 3; s++) counts[s] += states[k] == s;
      }
    }
    if (changed) all.write((unsigned)id, n, states);
    write_bits(next, w, ill, agents);
    __syncwarp(0xffffffffu); // before the queue is filled again
  }
  if (count)
    for (unsigned s = 0; s < 3; s++) add_warp(counts[s], tally + s);
}
