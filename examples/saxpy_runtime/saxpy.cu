// y = a x + y in chunks over two streams, timed with events: the runtime API as nvcc programs use
// it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                               \
  do {                                                                            \
    const cudaError_t error_ = (call);                                            \
    if (error_ != cudaSuccess) {                                                  \
      std::fprintf(stderr, "saxpy: %s: %s\n", #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                               \
    }                                                                             \
  } while (0)

__global__ void saxpy(float a, const float* x, float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i];
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  constexpr int kCount = 1 << 22, kChunks = 4, kChunk = kCount / kChunks;
  constexpr float kA = 2.0f;

  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const bool simulated = std::strstr(device.name, "simulated") != nullptr;

  float *x = nullptr, *y = nullptr, *host = nullptr;
  CHECK(cudaMalloc(&x, kCount * sizeof(float)));
  CHECK(cudaMalloc(&y, kCount * sizeof(float)));
  CHECK(cudaMallocHost(&host, kCount * sizeof(float)));  // pinned, so that the copies can overlap
  std::vector<float> ones(kCount, 1.0f);
  CHECK(cudaMemcpy(x, ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(y, 0, kCount * sizeof(float)));

  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));

  CHECK(cudaEventRecord(start));
  for (int round = 0; round < rounds; ++round) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int first = chunk * kChunk;
      saxpy<<<(kChunk + 255) / 256, 256, 0, streams[chunk % 2]>>>(kA, x + first, y + first, kChunk);
      CHECK(cudaGetLastError());
      CHECK(cudaMemcpyAsync(host + first, y + first, kChunk * sizeof(float), cudaMemcpyDeviceToHost,
                            streams[chunk % 2]));
    }
  }
  CHECK(cudaEventRecord(stop));  // the legacy stream waits for both
  CHECK(cudaEventSynchronize(stop));
  float elapsed_ms = 0;
  CHECK(cudaEventElapsedTime(&elapsed_ms, start, stop));

  int wrong = 0;
  if (simulated) {
    // A kernel costs time there and may compute nothing: check a copy that needs no kernel.
    CHECK(cudaMemcpy(host, x, kCount * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < kCount; ++i) wrong += host[i] != 1.0f;
  } else {
    for (int i = 0; i < kCount; ++i) wrong += host[i] != kA * static_cast<float>(rounds);
  }
  std::printf("%s: %d launches in %.3f ms; %s%s\n", device.name, rounds * kChunks, elapsed_ms,
              wrong       ? "WRONG"
              : simulated ? "the copies are right"
                          : "every value is right",
              simulated ? ", the sums were not checked (simulated)" : "");
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(host));
  CHECK(cudaFree(y));
  CHECK(cudaFree(x));
  return wrong != 0;
}
