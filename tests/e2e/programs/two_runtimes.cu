// two_runtimes [LAUNCHES]: a shared runtime in the program beside the hidden static one of
// libhidden_runtime.so; LAUNCHES each. The last error of one is not the other's.
#include <cuda_runtime.h>

#include "program.h"

extern "C" void plugin_run(unsigned long long count, Counts* counts);

__global__ void own_spin(unsigned long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < static_cast<long long>(clocks)) {
  }
}

int main(int argc, char** argv) {
  const auto count = argument(argc, argv, 1, 10);
  Counts counts;
  own_spin<<<1, 2048>>>(1);  // too many threads: this runtime's error only
  const cudaError_t refused = cudaPeekAtLastError();
  REQUIRE_THAT(refused != cudaSuccess);
  plugin_run(count, &counts);
  REQUIRE_THAT(cudaGetLastError() == refused);
  for (unsigned long long i = 0; i < count; ++i) own_spin<<<1, 32>>>(10000);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  counts.launches += count;
  return finish(counts);
}
