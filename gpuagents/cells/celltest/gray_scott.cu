// Gray and Scott: a substance eats a substrate. `used` is the part of the substrate that is missing: zeros are at rest.
__device__ void step(Agent &self, const Params &p, const Around &around) {
  const float eaten = (1.0f - self.used) * self.v * self.v;
  const float spread = around.mean.v - self.v, refill = around.mean.used - self.used;
  self.v = self.v + p.spread * spread + eaten - (p.feed + p.kill) * self.v;
  self.used = self.used + p.refill * refill + eaten - p.feed * self.used;
}
