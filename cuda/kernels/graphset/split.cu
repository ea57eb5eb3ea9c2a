// graph_split copies the links of some rows that go to some consecutive agents, with their weights and delays; see
// graphset.go. A warp has a row, and goes along it 32 links at a time.

// What copies a link.
struct Copier {
  const unsigned *columns;
  const int *weights;          // null: links have none
  const unsigned char *delays; // null: they are drawn
  unsigned low;
  unsigned *to_columns;
  int *to_weights;
  unsigned char *to_delays; // null: links have none

  __device__ __forceinline__ void copy(u64 from, u64 to, unsigned delay) const {
    to_columns[to] = columns[from] - low;
    if (weights) to_weights[to] = weights[from];
    if (to_delays) to_delays[to] = delays ? delays[from] : (unsigned char)delay;
  }
};

extern "C" __global__ void __launch_bounds__(128)
graph_split(const unsigned *columns, const int *weights, const unsigned char *delays,
            const unsigned long long *offsets, unsigned degree, unsigned weighted, unsigned delayed, unsigned listed,
            unsigned least, unsigned span, unsigned key0, unsigned key1, unsigned first_row, unsigned rows,
            unsigned low, unsigned size, unsigned rest, const unsigned *places, unsigned *to_columns, int *to_weights,
            unsigned char *to_delays) {
  const Links links = {offsets, degree};
  const Copier copier = {columns,    weighted ? weights : nullptr, listed ? delays : nullptr, low,
                         to_columns, to_weights,                   delayed ? to_delays : nullptr};
  const unsigned lane = threadIdx.x % 32, before = (1u << lane) - 1;
  const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
  for (u64 row = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    const unsigned id = first_row + (unsigned)row;
    const u64 begin = links.first(id), end = links.first((u64)id + 1);
    u64 to = places[row], behind = to + (end - begin); // of the next link of each kind
    for (u64 first = begin; first < end; first += 32) {
      const u64 at = first + lane, k = at - begin;
      const bool has = at < end, own = has && columns[at] - low < size;
      unsigned delay = least;
      if (delayed && !listed && span > 1) {
        const Words words(key0, key1, (unsigned)(k / 128 * 32 + k % 32), id, 1, 0);
        delay += (unsigned)((u64)words.at((unsigned)(k / 32 % 4)) * span >> 32);
      }
      const unsigned owns = __ballot_sync(0xffffffffu, own), others = __ballot_sync(0xffffffffu, has && !own);
      if (own) copier.copy(at, to + (unsigned)__popc(owns & before), delay);
      if (rest && has && !own) copier.copy(at, behind - 1 - (unsigned)__popc(others & before), delay);
      to += (unsigned)__popc(owns);
      behind -= (unsigned)__popc(others);
    }
  }
}
