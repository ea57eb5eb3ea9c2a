// state_matrix makes the matrices of gates in rows by recipes; see quantumset.go. A thread makes a matrix. Every
// operation of double rounds, in the order of the twin.

struct Complex {
  double x, y;
};

__device__ __forceinline__ Complex times(Complex a, Complex b) {
  return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

__device__ __forceinline__ Complex plus(Complex a, Complex b) { return {a.x + b.x, a.y + b.y}; }

__device__ __forceinline__ Complex scaled(Complex a, double by) { return {a.x * by, a.y * by}; }

__device__ __forceinline__ Complex negated(Complex a) { return {-a.x, -a.y}; }

// exp(i x) for a finite x: fdlibm's polynomials behind a reduction by two parts of pi/2, and before it for large x one
// by 2 pi and what float64 misses of it.
__device__ __forceinline__ Complex circle(double x) {
  if (fabs(x) > 1048576.0) {
    const double two_pi = 6.283185307179586, rest = fmod(x, two_pi);
    x = fabs(x) < 9007199254740992.0 ? rest - rint((x - rest) / two_pi) * 2.4492935982947064e-16 : rest;
  }
  const double n = rint(x * 6.36619772367581382433e-01);
  const double r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11, z = r * r;
  double p = -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10;
  p = 2.75573137070700676789e-06 + z * p;
  p = -1.98412698298579493134e-04 + z * p;
  p = 8.33333333332248946124e-03 + z * p;
  p = -1.66666666666666324348e-01 + z * p;
  const double sin = r + z * r * p;
  p = 2.08757232129817482790e-09 + z * -1.13596475577881948265e-11;
  p = -2.75573143513906633035e-07 + z * p;
  p = 2.48015872894767294178e-05 + z * p;
  p = -1.38888888888741095749e-03 + z * p;
  p = 4.16666666666666019037e-02 + z * p;
  const double cos = 1.0 - (0.5 * z - z * (z * p));
  switch ((int)n & 3) {
  case 0: return {cos, sin};
  case 1: return {-sin, cos};
  case 2: return {-cos, -sin};
  default: return {sin, -cos};
  }
}

// What is 0 but for rounding is 0, as in package circuit.
__device__ __forceinline__ double clean(double x) { return fabs(x) < 0x1p-50 ? 0.0 : x; }

// exp(i gamma) U(theta, phi, lambda), as product of package circuit.
__device__ __forceinline__ void unitary(double theta, double phi, double lambda, double gamma, Complex (&m)[4]) {
  if (theta == 0.0 && phi == 0.0 && gamma == -0.5 * lambda) {
    const Complex g = circle(gamma);
    m[0] = g, m[1] = {0.0, 0.0}, m[2] = {0.0, 0.0}, m[3] = {g.x, -g.y};
  } else {
    const Complex half = circle(0.5 * theta);
    const double phase = gamma + 0.5 * theta, right = 1.5707963267948966;
    if (phase == 0.0 && phi == 0.0 && lambda == 0.0) {
      m[0] = {half.x, 0.0}, m[1] = {-half.y, 0.0}, m[2] = {half.y, 0.0}, m[3] = {half.x, 0.0};
    } else if (phase == 0.0 && phi == -right && lambda == right) {
      m[0] = {half.x, 0.0}, m[1] = {0.0, -half.y}, m[2] = {0.0, -half.y}, m[3] = {half.x, 0.0};
    } else {
      const Complex by = circle(phase), p = circle(phi), l = circle(lambda);
      const Complex c = scaled(by, half.x), s = scaled(by, half.y);
      m[0] = c, m[1] = negated(times(l, s)), m[2] = times(p, s), m[3] = times(times(p, l), c);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < 4; i++) m[i] = {clean(m[i].x), clean(m[i].y)};
}

extern "C" __global__ void __launch_bounds__(256)
state_matrix(const double *columns, unsigned width, const unsigned long long *recipes, unsigned slots,
             unsigned long long made, unsigned long long rows, float *matrices) {
  const u64 *const factors = recipes + slots;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < made * slots; i += (u64)gridDim.x * blockDim.x) {
    const u64 slot = i / made, row = i % made, recipe = recipes[slot];
    const double *const in = columns + row * width;
    const unsigned first = (unsigned)recipe, end = (unsigned)(recipe >> 32) & 0x7fffffff;
    Complex m[4] = {{1.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}, {1.0, 0.0}};
    for (unsigned f = first; f < end; f++) {
      const u64 *const factor = factors + FACTOR_WORDS * f;
      const double *const numbers = (const double *)factor + FACTOR_NUMBERS;
      Complex by[4];
      if (factor[0] == FACTOR_UNITARY) {
        double a[4];
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
          const unsigned column = (unsigned)(factor[FACTOR_COLUMNS + k / 2] >> 32 * (k % 2));
          a[k] = numbers[2 * k];
          if (numbers[2 * k + 1] != 0.0) a[k] = a[k] + numbers[2 * k + 1] * in[column];
        }
        unitary(a[0], a[1], a[2], a[3], by);
      } else {
        const double *const from = factor[0] == FACTOR_GIVEN ? in + factor[FACTOR_COLUMNS] : numbers;
#pragma unroll
        for (unsigned k = 0; k < 4; k++) by[k] = {from[2 * k], from[2 * k + 1]};
      }
      if (f == first) {
#pragma unroll
        for (unsigned k = 0; k < 4; k++) m[k] = by[k];
        continue;
      }
      const Complex was[4] = {m[0], m[1], m[2], m[3]};
      m[0] = plus(times(by[0], was[0]), times(by[1], was[2]));
      m[1] = plus(times(by[0], was[1]), times(by[1], was[3]));
      m[2] = plus(times(by[2], was[0]), times(by[3], was[2]));
      m[3] = plus(times(by[2], was[1]), times(by[3], was[3]));
    }
    if (recipe >> 63) m[0] = m[3];
    float4 *const to = (float4 *)matrices + 2 * (slot * rows + row);
    to[0] = make_float4((float)m[0].x, (float)m[0].y, (float)m[1].x, (float)m[1].y);
    to[1] = make_float4((float)m[2].x, (float)m[2].y, (float)m[3].x, (float)m[3].y);
  }
}
