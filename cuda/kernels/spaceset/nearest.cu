// space_nearest_8, _16 and _32 make a step of boids that hear the nearest agents alone; see spaceset.go. A lane has an
// agent. MOST is 8, 16 or 32, so that the list of the nearest agents is in registers.

// The nearest agents that a lane has seen, in a fixed order: by the square of their distance, and by their numbers
// where it is the same. So the order in which a lane sees agents does not matter.
struct Nearest {
  Near all;
  uint4 p; // of the agent
  u64 keys[MOST];
  unsigned at[MOST];

  // The list keeps count agents. The elements before them have a key that is never above the key of an agent. The
  // elements of agents that are not found yet have the key of an agent at a distance of a radius.
  __device__ __forceinline__ Nearest(const Near &near, uint4 place, unsigned count) : all(near), p(place) {
#pragma unroll
    for (unsigned u = 0; u < MOST; u++) keys[u] = u + count < MOST ? 0 : key(1.0f, 0), at[u] = NONE;
  }

  static const unsigned NONE = 0xffffffffu;

  __device__ __forceinline__ static u64 key(float square, unsigned id) {
    return (u64)__float_as_uint(square) << 32 | id; // bits of floats from 0 on have the order of the floats
  }

  // The square of the distance of the last agent of the list.
  __device__ __forceinline__ float worst() const { return __uint_as_float((unsigned)(keys[MOST - 1] >> 32)); }

  // Puts agent j of the sorted list into its place, unless it is the agent itself or behind the last one.
  __device__ __forceinline__ void add(unsigned j) {
    const uint4 o = __ldg(all.positions + j);
    float x, y, z;
    u64 k = key(all.offset(p, o, x, y, z), o.w);
    if (o.w == p.w || k >= keys[MOST - 1]) return;
#pragma unroll
    for (unsigned u = 0; u < MOST; u++) {
      const u64 other = keys[u];
      const unsigned place = at[u];
      const bool before = k < other;
      keys[u] = before ? k : other, at[u] = before ? j : place;
      k = before ? other : k, j = before ? place : j;
    }
  }

  // Adds the agents of the list from first on, up to end. Of 32 agents it leaves out, without a branch, the agents that
  // are further than the last of the nearest before these 32. It reads up to 3 elements behind the end.
  __device__ __forceinline__ void in(unsigned first, unsigned end) {
    for (; first < end; first += 32) {
      const unsigned n = end - first < 32 ? end - first : 32;
      const uint4 *from = all.positions + first;
      const float most = worst();
      unsigned near = 0;
#pragma unroll 1
      for (unsigned k = 0; k < n; k += 4, from += 4) {
        unsigned four = 0;
#pragma unroll
        for (unsigned u = 0; u < 4; u++) {
          float x, y, z;
          if (all.offset(p, __ldg(from + u), x, y, z) <= most) four |= 1u << u;
        }
        near |= four << k;
      }
      for (near &= 0xffffffffu >> (32 - n); near != 0; near &= near - 1) add(first + (unsigned)__ffs(near) - 1);
    }
  }

  // A distance on an axis of n bins that no agent of the bin at d, -1 to 1, is below, in radii. It is exact: steps are
  // whole, and each rounding of Near::offset keeps the order.
  __device__ __forceinline__ static float gap(unsigned position, int d, unsigned n, float scale) {
    const unsigned within = position * n; // how far it is in its bin, in 2^-32 of a bin
    return d == 0 ? 0.0f : (float)(int)((d < 0 ? within : ~within) / n) * scale;
  }

  // Adds the agents of the bins around the agent, its own row of bins first, and leaves out rows whose agents are all
  // further than the last one of the nearest.
  __device__ __forceinline__ void search() {
    const Bins b = all.bins;
    const unsigned reach = all.reach;
    const unsigned bx = Bins::on(p.x, b.nx), by = Bins::on(p.y, b.ny), bz = Bins::on(p.z, b.nz);
    const bool low = bx < reach, high = bx + reach >= b.nx;
    const unsigned from = low ? 0 : bx - reach, to = high ? b.nx : bx + reach + 1;
    const unsigned far_from = low ? bx + b.nx - reach : 0, far_to = low ? b.nx : bx + reach + 1 - b.nx;
    const int parts = all.periodic && (low || high) ? 2 : 1, rows = b.nz > 1 ? 9 : 3;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
      // Steps to the row: 0 and 0, then one axis, then both. Two bits each, plus 1.
      const int dy = (int)(0x22161u >> 2 * row & 3) - 1, dz = (int)(0x28215u >> 2 * row & 3) - 1;
      unsigned y, z;
      if (!all.beside(by, dy, b.ny, y) || !all.beside(bz, dz, b.nz, z)) continue;
      const float gy = gap(p.y, dy, b.ny, all.sy), gz = gap(p.z, dz, b.nz, all.sz);
      if (gy * gy + gz * gz > worst()) continue;
      const unsigned *starts = all.starts + (z * b.ny + y) * b.nx;
#pragma unroll 1
      for (int part = 0; part < parts; part++)
        in(__ldg(starts + (part ? far_from : from)), __ldg(starts + (part ? far_to : to)));
    }
  }
};

extern "C" __global__ void __launch_bounds__(128)
space_nearest_MOST(const uint4 *sorted, const uint4 *sorted_velocities, unsigned agents, unsigned nx, unsigned ny,
                   unsigned nz, unsigned reach, unsigned periodic, const unsigned *starts, float sx, float sy, float sz,
                   float within, float inverse, float cx, float cy, float cz, float alignment, float separation,
                   float slowest, float fastest, float mx, float my, float mz, uint4 *positions, uint4 *velocities,
                   unsigned char *states, unsigned count, unsigned long long *tally, unsigned most) {
  const Near all = {sorted, starts, {nx, ny, nz}, reach, periodic, sx, sy, sz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  unsigned alone = 0, near = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    uint4 p = sorted[i];
    Nearest found(all, p, most);
    found.search();
    Seen s = {all, sorted_velocities, p, within, inverse, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
    for (unsigned u = 0; u < MOST; u++)
      if (found.at[u] != Nearest::NONE) s.add(found.at[u]);
    const uint4 was = sorted_velocities[i];
    float x = (float)(int)was.x, y = (float)(int)was.y, z = (float)(int)was.z;
    if (s.n > 0) {
      const float of = 1.0f / (float)s.n;
      x = steered((int)was.x, s.ox, s.vx, s.rx, of, cx, alignment, separation);
      y = steered((int)was.y, s.oy, s.vy, s.ry, of, cy, alignment, separation);
      z = steered((int)was.z, s.oz, s.vz, s.rz, of, cz, alignment, separation);
    }
    const float square = x * x + y * y + z * z;
    float scale = 1.0f;
    if (square > fastest * fastest) {
      scale = fastest / sqrtf(square);
    } else if (square < slowest * slowest && square > 0.0f) {
      scale = slowest / sqrtf(square);
    }
    int vx = __float2int_rn(x * scale), vy = __float2int_rn(y * scale), vz = __float2int_rn(z * scale);
    bool turned = false;
    p.x = moved(p.x, __float2int_rn((float)vx * mx), periodic, true, &turned);
    if (turned) vx = -vx;
    turned = false;
    p.y = moved(p.y, __float2int_rn((float)vy * my), periodic, true, &turned);
    if (turned) vy = -vy;
    turned = false;
    p.z = moved(p.z, __float2int_rn((float)vz * mz), periodic, true, &turned);
    if (turned) vz = -vz;
    positions[i] = p;
    velocities[i] = make_uint4((unsigned)vx, (unsigned)vy, (unsigned)vz, 0);
    states[i] = s.n > 0;
    alone += s.n == 0, near += s.n > 0;
  }
  if (count) {
    add_warp(alone, tally);
    add_warp(near, tally + 1);
  }
}
