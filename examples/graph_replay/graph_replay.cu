// Captures a step of three kernels and a copy into a CUDA graph, then replays it: what inference
// servers do. lull treats one graph launch as one unit, recognised by its nodes.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    const cudaError_t error_ = (call);                                                   \
    if (error_ != cudaSuccess) {                                                         \
      std::fprintf(stderr, "graph_replay: %s: %s\n", #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

__global__ void scale(float* data, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= factor;
}

__global__ void shift(float* data, float amount, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += amount;
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 50;
  constexpr int kCount = 1 << 20;
  constexpr size_t kBytes = kCount * sizeof(float);
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const bool simulated = std::strstr(device.name, "simulated") != nullptr;

  float *data = nullptr, *host = nullptr;
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaMallocHost(&host, kBytes));
  CHECK(cudaMemset(data, 0, kBytes));
  std::memset(host, 0xff, kBytes);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  shift<<<kCount / 256, 256, 0, stream>>>(data, 2.0f, kCount);
  scale<<<kCount / 256, 256, 0, stream>>>(data, 0.5f, kCount);
  shift<<<kCount / 256, 256, 0, stream>>>(data, 1.0f, kCount);
  CHECK(cudaMemcpyAsync(host, data, kBytes, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  cudaGraphExec_t step;
  CHECK(cudaGraphInstantiate(&step, graph, 0));
  for (int i = 0; i < steps; ++i) CHECK(cudaGraphLaunch(step, stream));
  CHECK(cudaStreamSynchronize(stream));

  // A simulated kernel costs time and may compute nothing: whatever is on the device by then, the
  // graph's last copy must have brought it here.
  float expected = 0.0f;
  for (int i = 0; i < steps; ++i) expected = (expected + 2.0f) * 0.5f + 1.0f;
  if (simulated) CHECK(cudaMemcpy(&expected, data, sizeof expected, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += host[i] != expected;
  std::printf("%s: %d launches of a graph of %zu nodes; %s\n", device.name, steps, nodes,
              wrong       ? "WRONG"
              : simulated ? "the copy is right, the sums were not checked (simulated)"
                          : "every value is right");
  CHECK(cudaGraphExecDestroy(step));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(host));
  CHECK(cudaFree(data));
  return wrong != 0;
}
