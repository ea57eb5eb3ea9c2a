// language_gate multiplies silu(gate) by up; see languageset.go.
extern "C" __global__ void __launch_bounds__(256)
language_gate(float *gate, const float *up, unsigned long long count) {
  const u64 threads = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    const float x = gate[i];
    gate[i] = mul(quo(x, add(1.0f, power_of_e(sub(0.0f, x)))), up[i]);
  }
}
