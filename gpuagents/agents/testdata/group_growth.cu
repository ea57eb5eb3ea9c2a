// What CUB does for the sum and the number of the values of each key, from the host's call until both are in host
// memory, against the number of values: a sort of pairs by the bits of the key and a reduction of runs of equal keys,
// captured as one graph. Beside it is a kernel of our own with sums of each block in shared memory, which has no order
// of sums. BenchmarkAgentsFuse by vote is the same question.
//
//   nvcc -O3 -arch=sm_90 -std=c++17 group_growth.cu -o group_growth && ./group_growth >opponents.json
//
// Writes a JSON object a line: name, n, us (median wall time of 40 replays).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <functional>
#include <random>
#include <vector>

#define KEYS 2
#define REPS 40

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t e = (call);                                                               \
    if (e != cudaSuccess) {                                                                     \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e));     \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

struct Group {
  float sum;
  unsigned count;
};

struct Add {
  __host__ __device__ Group operator()(const Group &a, const Group &b) const {
    return {a.sum + b.sum, a.count + b.count};
  }
};

struct One {
  __host__ __device__ Group operator()(float v) const { return {v, 1}; }
};

// Each thread has sums of all keys in registers; values are read four at a time.
__global__ void by_block(const uchar4 *keys, const float4 *values, size_t fours, Group *groups) {
  float sum[KEYS] = {};
  unsigned count[KEYS] = {};
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < fours; i += (size_t)gridDim.x * blockDim.x) {
    const uchar4 k = keys[i];
    const float4 v = values[i];
#pragma unroll
    for (int c = 0; c < KEYS; c++) {
      sum[c] += (k.x == c ? v.x : 0) + (k.y == c ? v.y : 0) + (k.z == c ? v.z : 0) + (k.w == c ? v.w : 0);
      count[c] += (k.x == c) + (k.y == c) + (k.z == c) + (k.w == c);
    }
  }
  typedef cub::BlockReduce<Group, 256> Reduce;
  __shared__ typename Reduce::TempStorage temporary;
#pragma unroll
  for (int c = 0; c < KEYS; c++) {
    const Group all = Reduce(temporary).Reduce(Group{sum[c], count[c]}, Add());
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(&groups[c].sum, all.sum);
      atomicAdd(&groups[c].count, all.count);
    }
  }
}

static void measure(const char *name, size_t n, cudaStream_t stream, Group *result, const std::vector<double> &want,
    const std::function<void()> &work) {
  cudaGraph_t graph;
  cudaGraphExec_t run;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  work();
  CHECK(cudaStreamEndCapture(stream, &graph));
#if CUDART_VERSION >= 12000
  CHECK(cudaGraphInstantiate(&run, graph, 0));
#else
  CHECK(cudaGraphInstantiate(&run, graph, nullptr, nullptr, 0));
#endif
  std::vector<double> wall;
  for (int i = 0; i < REPS + 5; i++) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(cudaGraphLaunch(run, stream));
    CHECK(cudaStreamSynchronize(stream));
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (i >= 5) wall.push_back(us);
  }
  for (int c = 0; c < KEYS; c++) {
    if (std::abs(result[c].sum - want[c]) > 1e-3 * want[c] + 1) {
      fprintf(stderr, "%s of %zu: the sum of key %d is %g, want %g\n", name, n, c, result[c].sum, want[c]);
      exit(1);
    }
  }
  std::sort(wall.begin(), wall.end());
  printf("{\"name\": \"%s\", \"n\": %zu, \"us\": %.1f}\n", name, n, wall[wall.size() / 2]);
  fflush(stdout);
  CHECK(cudaGraphExecDestroy(run));
  CHECK(cudaGraphDestroy(graph));
}

static void run(size_t n, std::mt19937 &rng) {
  std::vector<unsigned char> keys(n);
  std::vector<float> values(n);
  std::vector<double> want(KEYS);
  for (size_t i = 0; i < n; i++) {
    keys[i] = rng() % KEYS;
    values[i] = (rng() >> 8) * (1.0f / (1 << 24));
    want[keys[i]] += values[i];
  }
  unsigned char *k, *sorted, *unique;
  float *v, *ordered;
  Group *groups, *result;
  int *runs;
  CHECK(cudaMalloc(&k, n));
  CHECK(cudaMalloc(&sorted, n));
  CHECK(cudaMalloc(&unique, n));
  CHECK(cudaMalloc(&v, 4 * n));
  CHECK(cudaMalloc(&ordered, 4 * n));
  CHECK(cudaMalloc(&groups, n * sizeof(Group)));
  CHECK(cudaMalloc(&runs, 4));
  CHECK(cudaMallocHost(&result, KEYS * sizeof(Group)));
  CHECK(cudaMemcpy(k, keys.data(), n, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(v, values.data(), 4 * n, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const int items = (int)n;
  cub::TransformInputIterator<Group, One, const float *> ones(ordered, One());
  size_t sorting = 0, reducing = 0;
  CHECK(cub::DeviceRadixSort::SortPairs(nullptr, sorting, k, sorted, v, ordered, items, 0, 1, stream));
  CHECK(cub::DeviceReduce::ReduceByKey(nullptr, reducing, sorted, unique, ones, groups, runs, Add(), items, stream));
  void *temporary;
  CHECK(cudaMalloc(&temporary, std::max(sorting, reducing)));
  const auto answer = [&] {
    CHECK(cudaMemcpyAsync(result, groups, KEYS * sizeof(Group), cudaMemcpyDeviceToHost, stream));
  };
  measure("cub sort", n, stream, result, want, [&] {
    CHECK(cub::DeviceRadixSort::SortPairs(temporary, sorting, k, sorted, v, ordered, items, 0, 1, stream));
    CHECK(cub::DeviceReduce::ReduceByKey(temporary, reducing, sorted, unique, ones, groups, runs, Add(), items,
        stream));
    answer();
  });
  measure("one pass", n, stream, result, want, [&] {
    CHECK(cudaMemsetAsync(groups, 0, KEYS * sizeof(Group), stream));
    const int blocks = (int)std::min<size_t>(132 * 8, (n / 4 + 255) / 256);
    by_block<<<blocks, 256, 0, stream>>>((const uchar4 *)k, (const float4 *)v, n / 4, groups);
    answer();
  });
  for (void *p : {(void *)k, (void *)sorted, (void *)unique, (void *)v, (void *)ordered, (void *)groups, (void *)runs,
           temporary})
    CHECK(cudaFree(p));
  CHECK(cudaFreeHost(result));
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  std::mt19937 rng(1);
  for (size_t n : {1024, 10240, 102400, 1024000, 10240000, 102400000}) run(n, rng);
}
