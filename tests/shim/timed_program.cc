// A program whose kernels have known lengths: `timed_program PATTERN COUNT KERNEL_NS`. It waits on
// the host by spinning, in real time.
//
//   idle    each launch finds the stream idle
//   queued  a hundred launches in a row on a stream that waits for them all, then a
//           synchronisation, as often as needed: however slow the host is, the queue is deep
//   groups  three launches, then a pause, without a synchronisation; two streams take turns
//
// At its end it synchronises until its standard input ends: so long its measurements can be read.
#include <cuda.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

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
  } else if (strcmp(pattern, "queued") == 0) {
    uint32_t* gate = nullptr;
    CUdeviceptr gate_address;
    check(cuMemHostAlloc(reinterpret_cast<void**>(&gate), sizeof *gate, CU_MEMHOSTALLOC_DEVICEMAP));
    check(cuMemHostGetDevicePointer(&gate_address, gate, 0));
    *gate = 0;
    for (int n = 0; n < count; ++n) {
      const auto turn = static_cast<uint32_t>(n / 100 + 1);
      if (n % 100 == 0) {
        check(cuStreamWaitValue32(streams[0], gate_address, turn, CU_STREAM_WAIT_VALUE_GEQ));
      }
      launch(streams[0]);
      if (n % 100 != 99) continue;
      __atomic_store_n(gate, turn, __ATOMIC_RELEASE);
      check(cuCtxSynchronize());
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
  pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
  do check(cuCtxSynchronize());
  while (poll(&input, 1, /*ms=*/1) == 0);
  check(cuDevicePrimaryCtxRelease(0));
  return 0;
}
