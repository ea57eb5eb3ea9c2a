// Runs a launch of KERNEL, which has PARAMS parameters: reads the parameters from the file of the argument, and writes
// their memory back. It needs a type uint4, for the alignment.
struct Param {
  uint64_t memory, value;
  std::unique_ptr<uint4[]> at;
  template <class T> operator T *() const { return (T *)at.get(); }
  operator unsigned() const { return (unsigned)value; }
  operator float() const { return __uint_as_float((unsigned)value); }
  operator unsigned long long() const { return value; }
};

template <size_t... I> static void call(const std::vector<Param> &p, std::index_sequence<I...>) { KERNEL(p[I]...); }

static std::vector<Param> p;

int main(int, char **argv) {
  FILE *f = fopen(argv[1], "r+b");
  uint64_t head[3];
  if (!f || fread(head, 8, 3, f) != 3) return 1;
  p.resize(head[2]);
  for (auto &a : p) {
    uint64_t words[2];
    if (fread(words, 8, 2, f) != 2) return 1;
    a.memory = words[0], a.value = words[1];
    if (!a.memory) continue;
    a.at.reset(new uint4[(a.value + 15) / 16]);
    if (a.value && fread(a.at.get(), 1, a.value, f) != a.value) return 1;
  }
  blockDim.x = head[0], gridDim.x = head[1];
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
    fibers::run(blockDim.x, [] { call(p, std::make_index_sequence<PARAMS>()); });
  rewind(f);
  fwrite(head, 8, 3, f);
  for (auto &a : p) {
    const uint64_t words[2] = {a.memory, a.value};
    fwrite(words, 8, 2, f);
    if (a.memory && a.value) fwrite(a.at.get(), 1, a.value, f);
  }
  return fclose(f);
}
