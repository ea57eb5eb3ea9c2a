// An oscillator of two variables, with one of each type beside them; oscillator.go is its twin.
__device__ Ballot step(Agent &a, const Params &p, const Observation &x) {
  a.past[2] = a.past[1];
  a.past[1] = a.past[0];
  a.past[0] = x.features[x.count - 1];
  const float up = a.uniform(); // a statement each: C++ does not say which argument is drawn first
  const float down = a.uniform();
  const float force = add(add(a.past[0], a.past[2]), mul(p.noise, sub(up, down)));
  a.velocity = add(a.velocity, mul(p.stiffness, sub(force, a.place)));
  a.place = mul(add(a.place, a.velocity), p.damping);
  a.turns += a.place > 0.0f ? 1 : 3; // wraps at 256
  a.sum += (unsigned long long)(x.time / 1000000000) * (a.index + 1);
  a.seen = (unsigned)x.round + 1;
  if (a.fixed(5) < 0.25f && x.round % 3 == 0) return {abstain};
  unsigned vote = a.place > p.high ? 3 : (a.place < -p.high ? 0 : 1);
  if (a.turns % 16 == 0) vote = 2;
  if (a.index % 5 == 4) return {vote};
  return {vote, abs32(a.place), a.index % 4 * 3000};
}
