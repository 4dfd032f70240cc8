// libhidden_runtime.so: a library with its own static runtime inside, hidden, as cuBLAS and its
// like have. Linked by two_runtimes (which has a shared one) and opened as a plugin.
#include <cuda_runtime.h>

#include "program.h"

__global__ void hidden_spin(unsigned long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < static_cast<long long>(clocks)) {
  }
}

extern "C" __attribute__((visibility("default"))) void plugin_run(unsigned long long count,
                                                                  Counts* counts) {
  for (unsigned long long i = 0; i < count; ++i) hidden_spin<<<1, 32>>>(10000);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  counts->launches += count;
}
