// grid_get reads n cells; see gridset.go.
extern "C" __global__ void __launch_bounds__(128)
grid_get(const unsigned char *pages, const unsigned *frames, unsigned long long page_bytes, unsigned per,
         const unsigned *ids, unsigned n, unsigned char *values) {
  const Grid grid = {(unsigned char *)pages, frames, page_bytes, per};
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) values[i] = *grid.cell(ids[i]);
}
