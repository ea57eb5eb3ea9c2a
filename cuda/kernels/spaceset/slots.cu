// space_slots lists the agents that have a place in the list; see spaceset.go.
extern "C" __global__ void __launch_bounds__(128)
space_slots(unsigned agents, const unsigned *places, unsigned *slots) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < agents; i += step)
    if (places[i + 1] != places[i]) slots[places[i]] = (unsigned)i;
}
