// space_circles makes a step of circles; see spaceset.go. A lane has an agent.

// The forces of the agents that are near: sums of integers, in 2^-24, which are the same in every order.
struct Pushed {
  Near all;
  uint4 p;
  unsigned n;
  i64 fx, fy, fz;

  __device__ __forceinline__ void add(unsigned j) {
    float x, y, z;
    const float q = all.offset(p, __ldg(all.positions + j), x, y, z);
    if (q == 0.0f) return; // the agent itself, or one at the same place
    n++;
    // sin(2 pi d) / d, where d is the square root of q, within 4e-6. Each operation rounds once.
    const float t = q + q - 1.0f;
    float g = -0.00311258319f;
    g = g * t + 0.0305336472f;
    g = g * t + -0.211280614f;
    g = g * t + 0.994527638f;
    g = g * t + -2.77231622f;
    g = g * t + 3.47969532f;
    g = g * t + -0.154883295f;
    g = g * t + -1.36316586f;
    g = g * 16777216.0f;
    fx += __float2int_rn(g * x), fy += __float2int_rn(g * y), fz += __float2int_rn(g * z);
  }
};

extern "C" __global__ void __launch_bounds__(128)
space_circles(const uint4 *sorted, unsigned agents, unsigned nx, unsigned ny, unsigned nz, unsigned reach,
              unsigned periodic, const unsigned *starts, float sx, float sy, float sz, float mx, float my, float mz,
              uint4 *positions, unsigned char *states, unsigned count, unsigned long long *tally) {
  const Near all = {sorted, starts, {nx, ny, nz}, reach, periodic, sx, sy, sz};
  const u64 step = (u64)gridDim.x * blockDim.x;
  unsigned alone = 0, near = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step) {
    uint4 p = sorted[i];
    Pushed f = {all, p, 0, 0, 0, 0};
    all.each(p, f);
    if (f.n > 0) {
      const float of = 1.0f / (float)f.n;
      bool turned;
      p.x = moved(p.x, __float2int_rn((float)f.fx * of * mx), periodic, false, &turned);
      p.y = moved(p.y, __float2int_rn((float)f.fy * of * my), periodic, false, &turned);
      p.z = moved(p.z, __float2int_rn((float)f.fz * of * mz), periodic, false, &turned);
    }
    positions[i] = p;
    states[i] = f.n > 0;
    alone += f.n == 0, near += f.n > 0;
  }
  if (count) {
    add_warp(alone, tally);
    add_warp(near, tally + 1);
  }
}
