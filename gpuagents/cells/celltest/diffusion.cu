// Whole grains: an agent keeps what its neighbours and itself cannot share evenly. No grain is lost.
__device__ void step(Agent &self, const Params &, const Around &around) {
  self.grains += around.sum.share - self.share * around.neighbours;
  self.share = self.grains / (around.neighbours + 1);
}
