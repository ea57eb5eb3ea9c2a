// What CUB does for a round of votes, from the host's call until the winner is in host memory, against the number of
// ballots:
// a histogram of five bins, the largest of them, a copy, captured as one graph, which is replayed and waited for. It
// elects no leader, checks no quorum and closes no round.
//
//   nvcc -O3 -arch=sm_90 -std=c++17 tally.cu -o tally && ./tally >opponents.json
//
// Writes a JSON object a line: name, n, us (median wall time of 1,000 replays), p99, and device_us (median device
// time).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <random>
#include <vector>

#define CANDIDATES 5
#define ROUNDS 1000
#define WARMUP 50

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t e = (call);                                                               \
    if (e != cudaSuccess) {                                                                     \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e));     \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

__global__ void largest(const unsigned *counts, unsigned *result) {
  unsigned best = 0;
  for (unsigned c = 0; c < CANDIDATES; c++) {
    result[1 + c] = counts[c];
    if (counts[c] > counts[best]) best = c;
  }
  result[0] = best;
}

static void run(size_t n, std::mt19937 &rng) {
  std::vector<unsigned char> ballots(n);
  unsigned need[CANDIDATES] = {};
  for (auto &b : ballots) need[b = rng() % CANDIDATES]++;
  const int copies = n >= 100000000 ? 2 : 1; // as in the benchmark that this stands beside
  std::vector<cudaGraphExec_t> graphs(copies);
  std::vector<unsigned char *> memory(copies);
  unsigned *counts, *device_result, *result;
  CHECK(cudaMalloc(&counts, sizeof(unsigned) * CANDIDATES));
  CHECK(cudaMalloc(&device_result, sizeof(unsigned) * (CANDIDATES + 1)));
  CHECK(cudaMallocHost(&result, sizeof(unsigned) * (CANDIDATES + 1)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  size_t bytes = 0;
  void *temporary = nullptr;
  for (int i = 0; i < copies; i++) {
    CHECK(cudaMalloc(&memory[i], n));
    CHECK(cudaMemcpy(memory[i], ballots.data(), n, cudaMemcpyHostToDevice));
    if (!temporary) {
      CHECK(cub::DeviceHistogram::HistogramEven(nullptr, bytes, memory[i], counts, CANDIDATES + 1, 0, CANDIDATES,
          (int)n, stream));
      CHECK(cudaMalloc(&temporary, bytes));
    }
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cub::DeviceHistogram::HistogramEven(temporary, bytes, memory[i], counts, CANDIDATES + 1, 0, CANDIDATES,
        (int)n, stream));
    largest<<<1, 1, 0, stream>>>(counts, device_result);
    CHECK(cudaMemcpyAsync(result, device_result, sizeof(unsigned) * (CANDIDATES + 1), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
#if CUDART_VERSION >= 12000
    CHECK(cudaGraphInstantiate(&graphs[i], graph, 0));
#else
    CHECK(cudaGraphInstantiate(&graphs[i], graph, nullptr, nullptr, 0));
#endif
    CHECK(cudaGraphDestroy(graph));
  }
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<double> wall, device;
  for (int i = 0; i < ROUNDS + WARMUP; i++) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(cudaGraphLaunch(graphs[i % copies], stream));
    CHECK(cudaStreamSynchronize(stream));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (i >= WARMUP) wall.push_back(took.count());
  }
  for (int i = 0; i < 100; i++) {
    float ms;
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(graphs[i % copies], stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    device.push_back(ms * 1e3);
  }
  for (int c = 0; c < CANDIDATES; c++)
    if (result[1 + c] != need[c]) {
      fprintf(stderr, "candidate %d of %zu ballots: %u votes, want %u\n", c, n, result[1 + c], need[c]);
      exit(1);
    }
  std::sort(wall.begin(), wall.end());
  std::sort(device.begin(), device.end());
  printf("{\"name\": \"cub::DeviceHistogram and largest, one graph\", \"n\": %zu, "
         "\"us\": %.2f, \"p99\": %.2f, \"device_us\": %.2f}\n", n,
         wall[wall.size() / 2], wall[wall.size() * 99 / 100], device[device.size() / 2]);
  fflush(stdout);
  for (int i = 0; i < copies; i++) {
    CHECK(cudaGraphExecDestroy(graphs[i]));
    CHECK(cudaFree(memory[i]));
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(temporary));
  CHECK(cudaFree(counts));
  CHECK(cudaFree(device_result));
  CHECK(cudaFreeHost(result));
}

int main() {
  std::mt19937 rng(7);
  for (size_t n : {1000ul, 3000ul, 10000ul, 30000ul, 100000ul, 300000ul, 1000000ul, 3000000ul, 10000000ul, 30000000ul,
      100000000ul})
    run(n, rng);
}
