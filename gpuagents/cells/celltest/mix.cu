// A cell with a variable of each type, and all reductions. mix.go is its twin.
__device__ unsigned spin(unsigned v, unsigned by) { return (v << by | v >> (32 - by)) * 2654435761u; }

__device__ void step(Agent &self, const Params &p, const Around &around) {
  const unsigned long long all = around.sum.c ^ around.max.c ^ around.min.c;
  unsigned v = spin(self.b, 7) + around.sum.a + 3 * around.max.a + 5 * around.min.a + 7 * around.count.a;
  v = spin(v, 3) + (unsigned)around.sum.b + 9 * around.max.b + 11 * around.min.b + 13 * around.count.b;
  v += (unsigned)all + (unsigned)(all >> 32) + around.count.c + 17 * around.count.d + 19 * around.count.e;
  v += around.x + 1009 * around.y + 9176 * around.z + (unsigned)around.tick + self.index + around.neighbours;
  const float draw = self.uniform(); // a statement each: C++ does not say which argument is drawn first
  const float other = self.uniform();
  float d = self.d + p.rate * (around.mean.d - self.d) + around.mean.a / 1024.0f + around.mean.b / 8589934592.0f;
  d = d + (around.max.d - around.min.d) * 0.125f + around.sum.d * 0.001f + (draw - other) * self.fixed(3);
  const float e = self.e * 0.5f + around.mean.e * 0.25f + around.sum.e * 0.001f + around.max.e - around.min.e;
  self.d = d > 1000.0f ? 0.0f : d;
  self.e = e > 1000.0f || e < -1000.0f ? 1.0f : e;
  self.c = self.c * 6364136223846793005ull + all + v;
  self.b = v % 5 == 0 ? 0 : v;
  self.a = (unsigned char)(v >> 9) % 3 == 0 ? 0 : (unsigned char)(v >> 11);
}
