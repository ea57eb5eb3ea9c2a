// Life of three dimensions, the rule 4555 of Bays: an agent lives with five neighbours, or with four if it is alive.
__device__ void step(Agent &self, const Params &, const Around &around) {
  const unsigned n = around.count.alive;
  self.alive = n == 5 || (n == 4 && self.alive);
}
