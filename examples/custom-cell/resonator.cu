// Each agent is a damped oscillator with a period of its own. Noise moves it a little; input that swings at its period
// drives it far out, and then it votes swinging.
__device__ Ballot step(Agent &a, const Params &p, const Observation &x) {
  // The agent's own frequency, in radians an observation: fixed(0) is the same number at every step.
  const float quickest = 6.2831853f / p.period_min, slowest = 6.2831853f / p.period_max;
  const float w = slowest + a.fixed(0) * (quickest - slowest);

  const float force = clamp32(x.spreads[0], 3.0f); // an outlier is no swing
  a.speed += w * (w * (force - a.place) - p.damping * a.speed);
  a.place += a.speed;

  // How far out it swings, in the amplitudes that the operator calls unusual.
  const float reach = sqrtf(a.place * a.place + a.speed * a.speed / (w * w)) / p.unusual;
  if ((float)x.round < p.warmup) return {0};
  if (reach < 1.0f) return {0, reach};
  return {1, reach, 3}; // few have the right period: a quarter of the agents is enough for the rule weighted
}
