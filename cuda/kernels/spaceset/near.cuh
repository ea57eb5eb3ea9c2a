// What the kernels of a step share: the agents near an agent.
#pragma once

// A sorted list of agents, and where the agents of each bin are in it.
struct Near {
  const uint4 *positions;
  const unsigned *starts;
  Bins bins;
  unsigned reach, periodic;
  float sx, sy, sz; // steps of a position in radii

  // The distance of another position from p on each axis, in radii. Returns its square.
  __device__ __forceinline__ float offset(uint4 p, uint4 o, float &x, float &y, float &z) const {
    x = (float)(int)(o.x - p.x) * sx;
    y = (float)(int)(o.y - p.y) * sy;
    z = (float)(int)(o.z - p.z) * sz;
    return x * x + y * y + z * z;
  }

  // Calls f.add(j) for each agent j of the list from first on, up to end, that is nearer than a radius. First it
  // compares up to 32 agents in a row, so that the lanes of a warp stay together, and then it adds the near agents. It
  // reads up to 3 elements behind the end.
  template <class F> __device__ __forceinline__ void in(uint4 p, unsigned first, unsigned end, F &f) const {
    for (; first < end; first += 32) {
      const unsigned n = end - first < 32 ? end - first : 32;
      const uint4 *at = positions + first;
      unsigned near = 0;
#pragma unroll 1
      for (unsigned k = 0; k < n; k += 4, at += 4) {
        unsigned four = 0;
#pragma unroll
        for (unsigned u = 0; u < 4; u++) {
          float x, y, z;
          if (offset(p, __ldg(at + u), x, y, z) < 1.0f) four |= 1u << u;
        }
        near |= four << k;
      }
      for (near &= 0xffffffffu >> (32 - n); near != 0; near &= near - 1) f.add(first + (unsigned)__ffs(near) - 1);
    }
  }

  // The bin at a distance of d, -1 to 1, from bin b of n on an axis. Returns whether there is one.
  __device__ __forceinline__ bool beside(unsigned b, int d, unsigned n, unsigned &other) const {
    const int at = (int)b + d;
    other = at < 0 ? n - 1 : (at == (int)n ? 0 : (unsigned)at);
    return other == (unsigned)at || periodic;
  }

  // Calls f.add for each agent that is nearer than a radius to a position, and for an agent there. Bins that follow
  // each other on the first axis are one part of the list.
  template <class F> __device__ __forceinline__ void each(uint4 p, F &f) const {
    const unsigned bx = Bins::on(p.x, bins.nx), by = Bins::on(p.y, bins.ny), bz = Bins::on(p.z, bins.nz);
    const bool low = bx < reach, high = bx + reach >= bins.nx;
    const unsigned from = low ? 0 : bx - reach, to = high ? bins.nx : bx + reach + 1;
    // The bins at the other end of the axis, where an agent at one end of a periodic box has some.
    const unsigned far_from = low ? bx + bins.nx - reach : 0, far_to = low ? bins.nx : bx + reach + 1 - bins.nx;
    const int parts = periodic && (low || high) ? 2 : 1, deep = bins.nz > 1;
    for (int dz = -deep; dz <= deep; dz++) {
      unsigned z, y;
      if (!beside(bz, dz, bins.nz, z)) continue;
      for (int dy = -1; dy <= 1; dy++) {
        if (!beside(by, dy, bins.ny, y)) continue;
        const unsigned *row = starts + (z * bins.ny + y) * bins.nx;
        for (int part = 0; part < parts; part++)
          in(p, __ldg(row + (part ? far_from : from)), __ldg(row + (part ? far_to : to)), f);
      }
    }
  }
};

// Moves a position by a number of steps. In a box that is not periodic it stays in it: it bounces off the wall, and
// *turned becomes true, or it stops there if bounce is false.
__device__ __forceinline__ unsigned moved(unsigned position, int by, unsigned periodic, bool bounce, bool *turned) {
  if (periodic) return position + (unsigned)by;
  const i64 to = (i64)position + by, end = (i64)1 << 32;
  if (to >= 0 && to < end) return (unsigned)to;
  if (!bounce) return to < 0 ? 0 : 0xffffffffu;
  *turned = true;
  return (unsigned)(to < 0 ? -1 - to : 2 * end - 1 - to);
}
