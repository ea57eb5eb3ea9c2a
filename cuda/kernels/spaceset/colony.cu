// space_colony makes agents die and give birth; see spaceset.go. A lane has an agent.

// Counts the agents that are near.
struct Counted {
  unsigned n;

  __device__ __forceinline__ void add(unsigned) { n++; }
};

// Reports whether a word is below a chance in units of 2^-32. 2^32 - 1 units are a chance of 1.
__device__ __forceinline__ bool below(unsigned word, u64 chance) { return word < chance || chance >= 0xffffffffull; }

extern "C" __global__ void __launch_bounds__(128)
space_colony(unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per, unsigned at,
             unsigned stride, unsigned dims, const uint4 *sorted, unsigned agents, unsigned nx, unsigned ny,
             unsigned nz, unsigned reach, unsigned periodic, const unsigned *starts, float sx, float sy, float sz,
             unsigned birth, unsigned death, unsigned hunger, unsigned room, unsigned mx, unsigned my, unsigned mz,
             unsigned tick, unsigned key0, unsigned key1, unsigned *births, uint4 *children) {
  const Pages pages_of = {pages, frames, page_bytes, per, at, stride};
  const Near all = {sorted, starts, {nx, ny, nz}, reach, periodic, sx, sy, sz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    uint4 p = sorted[i];
    Counted f = {0};
    all.each(p, f);
    const unsigned id = p.w, others = f.n - 1; // the agent is near itself
    const Words fate(key0, ~key1, tick, id);
    if (below(fate.w[0], death + (u64)hunger * others)) {
      pages_of.page(id)[id % per] = 0;
      continue;
    }
    if (others >= room || !below(fate.w[1], birth)) continue;
    const Words way(~key0, ~key1, tick, id);
    bool turned;
    p.x = moved(p.x, (int)((i64)(int)way.w[0] * (i64)mx >> 31), periodic, true, &turned);
    p.y = moved(p.y, (int)((i64)(int)way.w[1] * (i64)my >> 31), periodic, true, &turned);
    p.z = moved(p.z, (int)((i64)(int)way.w[2] * (i64)mz >> 31), periodic, true, &turned);
    births[id] = 1;
    children[id] = p;
  }
}
