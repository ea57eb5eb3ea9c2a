// A forest: 0 is empty, 1 a tree, 2 a fire. Fire spreads to all trees around, and lightning strikes some.
__device__ void step(Agent &self, const Params &p, const Around &around) {
  const float draw = self.uniform();
  if (self.state == 2)
    self.state = 0;
  else if (self.state == 1)
    self.state = around.max.state == 2 || draw < p.lightning ? 2 : 1;
  else
    self.state = draw < p.growth ? 1 : 0;
}
