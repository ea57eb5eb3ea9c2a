// space_boids makes a step of boids; see spaceset.go. A lane has an agent.

// What an agent sees: sums of integers over the agents that are near, itself included, which are the same in every
// order. o is of offsets in steps of positions, v of velocities, and r of what separates, in 2^-24 radii.
struct Seen {
  Near all;
  const uint4 *velocities;
  uint4 p;
  float within, inverse; // the square of the distance within which agents separate, and its inverse
  unsigned n;
  i64 ox, oy, oz, vx, vy, vz, rx, ry, rz;

  __device__ __forceinline__ void add(unsigned j) {
    const uint4 o = __ldg(all.positions + j), v = __ldg(velocities + j);
    n++;
    ox += (int)(o.x - p.x), oy += (int)(o.y - p.y), oz += (int)(o.z - p.z);
    vx += (int)v.x, vy += (int)v.y, vz += (int)v.z;
    float x, y, z;
    const float q = all.offset(p, o, x, y, z);
    if (q >= within) return;
    const float w = (1.0f - q * inverse) * 16777216.0f;
    rx += __float2int_rn(w * x), ry += __float2int_rn(w * y), rz += __float2int_rn(w * z);
  }
};

// A component of the new velocity, in units. Each operation rounds once.
__device__ __forceinline__ float steered(int v, i64 offsets, i64 velocities, i64 separating, float inverse,
                                         float cohesion, float alignment, float separation) {
  float to = (float)v;
  const float centre = (float)offsets * inverse;
  to = to + centre * cohesion;
  const float mean = (float)velocities * inverse;
  const float apart = mean - (float)v;
  to = to + apart * alignment;
  to = to - (float)separating * separation;
  to = to < 1e15f ? to : 1e15f;
  return to > -1e15f ? to : -1e15f;
}

extern "C" __global__ void __launch_bounds__(128)
space_boids(const uint4 *sorted, const uint4 *sorted_velocities, unsigned agents, unsigned nx, unsigned ny, unsigned nz,
            unsigned reach, unsigned periodic, const unsigned *starts, float sx, float sy, float sz, float within,
            float inverse, float cx, float cy, float cz, float alignment, float separation, float slowest,
            float fastest, float mx, float my, float mz, uint4 *positions, uint4 *velocities, unsigned char *states,
            unsigned count, unsigned long long *tally) {
  const Near all = {sorted, starts, {nx, ny, nz}, reach, periodic, sx, sy, sz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  unsigned alone = 0, near = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    uint4 p = sorted[i];
    const uint4 was = sorted_velocities[i];
    Seen s = {all, sorted_velocities, p, within, inverse, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    all.each(p, s);
    const unsigned n = s.n - 1;
    float x = (float)(int)was.x, y = (float)(int)was.y, z = (float)(int)was.z;
    if (n > 0) {
      const float of = 1.0f / (float)n;
      x = steered((int)was.x, s.ox, s.vx - (int)was.x, s.rx, of, cx, alignment, separation);
      y = steered((int)was.y, s.oy, s.vy - (int)was.y, s.ry, of, cy, alignment, separation);
      z = steered((int)was.z, s.oz, s.vz - (int)was.z, s.rz, of, cz, alignment, separation);
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
    states[i] = n > 0;
    alone += n == 0, near += n > 0;
  }
  if (count) {
    add_warp(alone, tally);
    add_warp(near, tally + 1);
  }
}
