// The built-in cell leaky, operation by operation, as a custom one: the same bits come out.
__device__ double octaves(double low, double x) {
  const double whole = floor(x);
  return ldexp(low, (int)whole) * (1.0 + (x - whole));
}

__device__ double span(double low, double high) {
  int exponent;
  const double fraction = frexp(high / low, &exponent);
  return (double)(exponent - 1) + (2.0 * fraction - 1.0);
}

// What the built-in cell has in its table of weights.
__device__ void begin(Agent &a, const Params &p, unsigned count) {
  a.rate = (float)(1.0 / octaves(p.tau_min, (double)a.fixed(0) * span(p.tau_min, p.tau_max)));
  if (count == 1) {
    a.direction[0] = 1.0f;
    return;
  }
  double square = 0.0;
  for (unsigned f = 0; f < count; f++) {
    a.direction[f] = (float)((2.0 * (double)a.fixed(1 + f) - 1.0) * 1.7320508075688772);
    square += (double)a.direction[f] * (double)a.direction[f];
  }
  const double norm = sqrt(square);
  for (unsigned f = 0; f < count; f++) a.direction[f] = (float)((double)a.direction[f] / norm);
}

__device__ bool reaches(float ratio, float bound) {
  return __float_as_uint(ratio) >> 18 >= __float_as_uint(bound) >> 18;
}

__device__ Ballot step(Agent &a, const Params &p, const Observation &x) {
  if (x.round == 0) begin(a, p, x.count);
  const float inverse = quo(1.0f, (float)(x.round + 1));
  const float rate = max32(inverse, (float)(1.0 / (double)p.history));
  const float distance = sub(project(a.direction, 1, x.spreads, x.count), a.potential);
  const float usual = add(a.usual, 0.01f);
  const float ratio = quo(abs32(distance), usual);
  a.potential = add(a.potential, mul(max32(inverse, a.rate), distance));
  a.usual = add(a.usual, mul(rate, sub(min32(abs32(distance), mul(8.0f, usual)), a.usual)));
  unsigned vote = 0;
  if ((float)x.round >= p.warmup) vote = reaches(ratio, p.half) ? 2 : (reaches(ratio, p.suspicious) ? 1 : 0);
  return {vote, ratio};
}
