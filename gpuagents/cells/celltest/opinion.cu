// Agents move to the opinions that they hear over their links, and some of them are loud.
__device__ void step(Agent &self, const Params &p, const Around &around) {
  const float draw = self.uniform();
  float to = around.mean.opinion + p.doubt * around.weighted.opinion - 0.001f * around.sum.opinion;
  if (around.neighbours == 0) to = self.opinion;
  to = to + 0.125f * (around.max.opinion - around.min.opinion) * (draw - 0.5f);
  self.opinion = self.opinion + p.trust * (to - self.opinion);
  self.heard = self.heard * 3 + around.count.loud + (unsigned)around.sum.heard + around.neighbours;
  self.loud = draw < 0.25f || self.heard % 7 == 0;
}
