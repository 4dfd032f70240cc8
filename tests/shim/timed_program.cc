// A program whose kernels have known lengths: `timed_program PATTERN COUNT KERNEL_NS`. It waits on
// the host by spinning, in real time. What its own events around each launch say goes to stdout.
//
//   idle    each launch finds the stream idle
//   naive   the same, with two events of the program's own around each launch; prints their median
//   queued  a hundred launches in a row, then a synchronisation, as often as needed
//   groups  three launches, then a pause, without a synchronisation; two streams take turns
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "coordinator/channel/model_clock.h"

namespace {

void spin_ns(uint64_t ns) {
  const uint64_t end = lull::channel::monotonic_ns() + ns;
  while (lull::channel::monotonic_ns() < end) {
  }
}

void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "timed_program: CUDA error %d\n", static_cast<int>(result));
  exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const char* pattern = argv[1];
  const int count = atoi(argv[2]);
  unsigned long long kernel_ns = strtoull(argv[3], nullptr, 10);
  check(cuInit(0));
  CUcontext context;
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  CUmodule module;
  check(cuModuleLoadData(&module,
                         ".version 8.0\n.target sm_90\n.address_size 64\n"
                         ".visible .entry spin(.param .u64 spin_ns) { ret; }\n"));
  CUfunction spin;
  check(cuModuleGetFunction(&spin, module, "spin"));
  CUstream streams[2];
  for (CUstream& stream : streams) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void* arguments[] = {&kernel_ns};
  const auto launch = [&](CUstream stream) {
    check(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
  };
  if (strcmp(pattern, "idle") == 0) {
    for (int n = 0; n < count; ++n) {
      launch(streams[0]);
      check(cuStreamSynchronize(streams[0]));
      spin_ns(20'000);
    }
  } else if (strcmp(pattern, "naive") == 0) {
    CUevent begin, end;
    check(cuEventCreate(&begin, 0));
    check(cuEventCreate(&end, 0));
    std::vector<float> measured;
    for (int n = 0; n < count; ++n) {
      check(cuEventRecord(begin, streams[0]));
      launch(streams[0]);
      check(cuEventRecord(end, streams[0]));
      check(cuEventSynchronize(end));
      float ms = 0;
      check(cuEventElapsedTime(&ms, begin, end));
      measured.push_back(ms);
      spin_ns(20'000);
    }
    std::nth_element(measured.begin(), measured.begin() + count / 2, measured.end());
    printf("%.0f\n", static_cast<double>(measured[static_cast<size_t>(count / 2)]) * 1e6);
  } else if (strcmp(pattern, "queued") == 0) {
    for (int n = 0; n < count; ++n) {
      launch(streams[0]);
      if (n % 100 == 99) check(cuCtxSynchronize());
    }
  } else {
    for (int n = 0; n < count; ++n) {
      launch(streams[n / 3 % 2]);
      if (n % 3 == 2) spin_ns(200'000);
    }
  }
  // Twice, so that whoever measures finds everything complete at the second.
  check(cuCtxSynchronize());
  launch(streams[0]);
  check(cuCtxSynchronize());
  check(cuDevicePrimaryCtxRelease(0));
  return 0;
}
