// Gray and Scott, 1985: a substance v eats a substrate; used is the part of the substrate that is missing. Both spread
// over the grid, the substrate faster. Zeros are a grid at rest.
__device__ void step(Agent &self, const Params &p, const Around &around) {
  // At first, v is at random places of some squares.
  if (around.tick == 0 && around.x % 64 < 12 && around.y % 64 < 12 && self.fixed(0) < 0.7f) self.used = self.v = 0.5f;

  const float eaten = (1.0f - self.used) * self.v * self.v;
  self.v += p.spread * (around.mean.v - self.v) + eaten - (p.feed + p.kill) * self.v;
  self.used += p.refill * (around.mean.used - self.used) + eaten - p.feed * self.used;
  self.shade = (unsigned char)(24.0f * self.v); // the colour in a picture
}
