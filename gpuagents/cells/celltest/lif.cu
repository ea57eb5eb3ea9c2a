// The built-in cell lif, operation by operation, as a custom one: the same bits come out.
__device__ double octaves(double low, double x) {
  const double whole = floor(x);
  return ldexp(low, (int)whole) * (1.0 + (x - whole));
}

// Number k of the agent as a rate: one over a time from low to high, with equal chances of its octaves.
__device__ float rate_of(const Agent &a, unsigned k, double low, double high) {
  int exponent;
  const double fraction = frexp(high / low, &exponent);
  return (float)(1.0 / octaves(low, (double)a.fixed(k) * ((double)(exponent - 1) + (2.0 * fraction - 1.0))));
}

__device__ void begin(Agent &a, const Params &p, unsigned count) {
  a.gain = rate_of(a, 0, p.reach_min, p.reach_max);
  a.leak = rate_of(a, 1, p.tau_min, p.tau_max);
  a.follow = rate_of(a, 2, p.trace_min, p.trace_max);
  if (count == 1) {
    a.direction[0] = 1.0f;
    return;
  }
  double square = 0.0;
  for (unsigned f = 0; f < count; f++) {
    a.direction[f] = (float)((2.0 * (double)a.fixed(3 + f) - 1.0) * 1.7320508075688772);
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
  const float current = mul(a.gain, abs32(project(a.direction, 1, x.spreads, x.count)));
  const float v = add(a.potential, mul(max32(inverse, a.leak), sub(current, a.potential)));
  const float threshold = add(1.0f, a.adaptation);
  const float spikes = (float)(unsigned)min32(quo(v, threshold), 16.0f);
  a.potential = min32(sub(v, mul(spikes, threshold)), threshold);
  a.adaptation = add(sub(a.adaptation, mul((float)(1.0 / (double)p.adapt_tau), a.adaptation)), mul(p.adapt, spikes));
  a.trace = add(a.trace, mul(max32(inverse, a.follow), sub(spikes, a.trace)));
  const float usual = add(a.usual, 0.05f);
  const float ratio = quo(a.trace, usual);
  a.usual = add(a.usual, mul(rate, sub(min32(a.trace, mul(8.0f, usual)), a.usual)));
  unsigned vote = 0;
  if ((float)x.round >= p.warmup) vote = reaches(ratio, p.half) ? 2 : (reaches(ratio, p.suspicious) ? 1 : 0);
  return {vote, ratio};
}
