// What the driver tests share: a simulated device of the process's own, a context, kernels whose
// length is their argument, and a gate that holds a stream until the test opens it, so that no test
// depends on how fast it runs.
#pragma once

#include <cuda.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

namespace sim_test {

inline const char* kPtx = R"(
.version 8.0
.target sm_90
.address_size 64
// .entry not_a_kernel(
.global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[64];
.visible .entry spin(.param .u64 spin_ns) { ret; }
.visible .entry mixed(
  .param .u32 mixed_param_0,
  .param .u64 .ptr .global .align 4 mixed_param_1,
  .param .align 8 .b8 mixed_param_2[24],
  .param .u8 mixed_param_3)
.maxntid 256, 1, 1
{ .shared .align 4 .b8 tile[1024]; { ret; } }
.visible .entry nothing() { ret; }
)";

inline void use_own_device(const char* devices = "1") {
  static const std::string path = "/tmp/simgpu-test-" + std::to_string(getpid());
  setenv("SIMGPU_DEVICE", path.c_str(), 1);
  setenv("SIMGPU_DEVICES", devices, 1);
  setenv("SIMGPU_SHARING", "time_slice", 1);
  unsetenv("SIMGPU_PROFILE");
  unsetenv("SIMGPU_SLOW_MOTION");
  unsetenv("CUDA_VISIBLE_DEVICES");
  static const bool registered = [] {
    atexit([] { unlink(path.c_str()); });
    return true;
  }();
  (void)registered;
}

struct Program {
  Program() {
    use_own_device("2");
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, kPtx));
    OK(cuModuleGetFunction(&spin, module, "spin"));
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 64, CU_MEMHOSTALLOC_DEVICEMAP));
    *gate = 0;
    // The first kernel after another context's pays for the switch.
    OK(launch(nullptr, 1));
    OK(cuCtxSynchronize());
    OK(cuMemHostGetDevicePointer_v2(&gate_address, gate, 0));
  }
  ~Program() {
    open_gate();
    cuCtxDestroy_v2(context);
  }
  CUresult launch(CUstream stream, unsigned long long ns, unsigned blocks = 1) {
    void* arguments[] = {&ns};
    return cuLaunchKernel(spin, blocks, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }
  // What comes after it on the stream waits for open_gate.
  CUresult hold(CUstream stream) {
    return cuStreamWaitValue32_v2(stream, gate_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
  }
  void open_gate() { __atomic_store_n(gate, 1u, __ATOMIC_RELEASE); }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  unsigned* gate = nullptr;
  CUdeviceptr gate_address = 0;
};

// What device memory holds that nobody has written.
inline constexpr unsigned char kFreshByte = 0xC5;

inline float elapsed_ms(CUevent from, CUevent to) {
  float ms = -1;
  OK(cuEventElapsedTime(&ms, from, to));
  return ms;
}

}  // namespace sim_test
