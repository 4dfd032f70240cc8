// runtime_{shared,static}[_per_thread] KIND [LAUNCHES]: the CUDA runtime, linked either way, with
// the legacy or the per-thread default stream.
//   kernel  <<<>>>      ex  cudaLaunchKernelEx      cooperative      host_function
//   graph   explicit    capture   captured; both launched 3 times     streams
#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <vector>

#include "program.h"

constexpr unsigned kGraphLaunches = 3;

__device__ unsigned long long counter;
__constant__ float scale[4];

__global__ void spin(unsigned long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < static_cast<long long>(clocks)) {
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) counter += scale[0] != 0.0f;
}

__global__ void second_spin(const unsigned char* data, unsigned long long clocks) {
  const long long begin = clock64() + data[threadIdx.x] * 0;
  while (clock64() - begin < static_cast<long long>(clocks)) {
  }
}

static constexpr unsigned long long kClocks = 10000;
static unsigned char* device_data;
static unsigned host_calls;

static void launch(unsigned long long index, cudaStream_t stream) {
  if (index % 2 == 0) {
    spin<<<1, 32, 0, stream>>>(kClocks);
  } else {
    second_spin<<<dim3(2, 1, 1), 32, 0, stream>>>(device_data, kClocks);
  }
  CHECK(cudaGetLastError());
}

static Counts replay(cudaGraph_t graph, cudaStream_t stream, unsigned long long kernels) {
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (unsigned i = 0; i < kGraphLaunches; ++i) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  Counts counts;
  counts.launches = kGraphLaunches;
  counts.graph_kernels = kGraphLaunches * kernels;
  return counts;
}

static Counts work(const std::string& kind, unsigned long long count) {
  Counts counts;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned long long clocks = kClocks;
  void* arguments[] = {&clocks};
  if (kind == "kernel") {
    for (unsigned long long i = 0; i < count; ++i) launch(i, i % 3 == 0 ? stream : nullptr);
    counts.launches = count;
  } else if (kind == "streams") {
    cudaStream_t other = nullptr;
    CHECK(cudaStreamCreate(&other));
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (unsigned long long i = 0; i < count; ++i) {
      launch(i, i % 2 ? stream : other);
      CHECK(cudaEventRecord(event, i % 2 ? stream : other));
      CHECK(cudaStreamWaitEvent(i % 2 ? other : stream, event, 0));
    }
    CHECK(cudaStreamSynchronize(other));
    counts.launches = count;
  } else if (kind == "ex") {
    for (unsigned long long i = 0; i < count; ++i) {
      cudaLaunchConfig_t config = {};
      config.gridDim = 1;
      config.blockDim = 32;
      config.stream = stream;
      CHECK(cudaLaunchKernelEx(&config, spin, clocks));
    }
    counts.launches = count;
  } else if (kind == "cooperative") {
    for (unsigned long long i = 0; i < count; ++i) {
      CHECK(cudaLaunchCooperativeKernel(spin, 2, 32, arguments, 0, stream));
    }
    counts.launches = count;
  } else if (kind == "host_function") {
    for (unsigned long long i = 0; i < count; ++i) {
      launch(i, stream);
      CHECK(cudaLaunchHostFunc(
          stream, [](void*) { ++host_calls; }, nullptr));
    }
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE_THAT(host_calls == count);
    counts.launches = counts.host_functions = count;
  } else if (kind == "graph") {
    cudaGraph_t graph = nullptr;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t last = nullptr;
    for (unsigned long long i = 0; i < count; ++i) {
      cudaKernelNodeParams parameters = {};
      parameters.func = reinterpret_cast<void*>(spin);
      parameters.gridDim = 1;
      parameters.blockDim = 32;
      parameters.kernelParams = arguments;
      cudaGraphNode_t node = nullptr;
      CHECK(
          cudaGraphAddKernelNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &parameters));
      last = node;
    }
    counts = replay(graph, stream, count);
  } else if (kind == "capture") {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (unsigned long long i = 0; i < count; ++i) launch(i, stream);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph));
    counts = replay(graph, stream, count);
  } else {
    std::fprintf(stderr, "program: unknown kind %s\n", kind.c_str());
    std::exit(2);
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamDestroy(stream));
  return counts;
}

int main(int argc, char** argv) {
  constexpr size_t kBytes = 1 << 16;
  const float factors[4] = {1, 2, 3, 4};
  float factors_back[4] = {};
  std::vector<unsigned char> out(kBytes, 7), back(kBytes, 0);
  CHECK(cudaMalloc(&device_data, kBytes));
  CHECK(cudaMemcpy(device_data, out.data(), kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(device_data, 9, kBytes / 2));
  CHECK(cudaMemcpyToSymbol(scale, factors, sizeof factors));
  Counts counts = work(argc > 1 ? argv[1] : "kernel", argument(argc, argv, 2, 10));
  CHECK(cudaMemcpyFromSymbol(factors_back, scale, sizeof factors));
  CHECK(cudaMemcpy(back.data(), device_data, kBytes, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < kBytes; ++i) REQUIRE_THAT(back[i] == (i < kBytes / 2 ? 9 : 7));
  REQUIRE_THAT(std::memcmp(factors, factors_back, sizeof factors) == 0);
  CHECK(cudaFree(device_data));
  counts.copies += 4;
  counts.memsets += 1;
  return finish(counts);
}
